#include "runtime/worlds.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/capture.h"

namespace loom::runtime {

std::atomic<bool> detail::others{false};

namespace {

std::atomic<Runtime*> the_program{nullptr};  // set when a dry run is first entered

struct World {
  std::unique_ptr<Runtime> runtime;
  bool is_over = false;
  int64_t num_pins = 0;
};

// A dry run's event: pinned by being here. Those of the program's first driver are not, so that a program
// without dry runs takes no lock.
struct ForeignEvent {
  driver::Driver* driver;
  Runtime* world;
};

// Leaked, as the program's devices are.
struct Worlds {
  std::mutex mutex;
  std::vector<World> all;  // oldest first; the program's own devices are not among them
  std::unordered_map<driver::Event, ForeignEvent> events;
  int64_t next_number = 1;

  World* find(const Runtime* runtime) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const World& each) { return each.runtime.get() == runtime; });
    return found == all.end() ? nullptr : &*found;
  }
};

Worlds& worlds_of_process() {
  static auto* const all = new Worlds;
  return *all;
}

std::atomic<int64_t> num_foreign_events{0};

bool is_unused(const World& world) {
  if (world.num_pins != 0) return false;
  for (int index = 0; index < world.runtime->device_count(); ++index) {
    if (world.runtime->device(index).allocator->stats().active_bytes[0].current != 0) return false;
  }
  return true;
}

Runtime* seen() noexcept { return detail::instance.load(std::memory_order_acquire); }

}  // namespace

Place locate(const void* address) noexcept {
  Runtime* const current = seen();
  void* const same = const_cast<void*>(address);
  Place place{driver::AddressKind::kUnknown, nullptr, same, same};
  if (current == nullptr) return place;
  place = current->locate(address);
  if (place.kind != driver::AddressKind::kUnknown || !has_other_worlds()) [[likely]] {
    return place;
  }
  Worlds& worlds = worlds_of_process();
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  if (Runtime* own = the_program.load(); own != current) place = own->locate(address);
  for (size_t i = 0; i < worlds.all.size() && place.kind == driver::AddressKind::kUnknown; ++i) {
    if (worlds.all[i].runtime.get() != current) place = worlds.all[i].runtime->locate(address);
  }
  return place;
}

driver::Driver& driver_of(driver::Event event) {
  if (num_foreign_events.load(std::memory_order_acquire) != 0) [[unlikely]] {
    Worlds& worlds = worlds_of_process();
    const std::lock_guard<std::mutex> lock(worlds.mutex);
    if (const auto found = worlds.events.find(event); found != worlds.events.end()) {
      return *found->second.driver;
    }
  }
  Runtime* const own = worlds::program();
  if (own == nullptr || in_bad_fork()) get();  // says what is wrong
  return const_cast<driver::Driver&>(*worlds::program()->first_driver());
}

driver::Event make_event(Device& device, driver::EventOptions options) {
  driver::Driver& driver = device.driver();
  const driver::Event event = driver.create_event(options);
  if (device.runtime().world() == 0 && device.runtime().first_driver() == &driver) [[likely]] {
    return event;
  }
  Worlds& worlds = worlds_of_process();
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  worlds.events[event] = {&driver, &device.runtime()};
  if (World* world = worlds.find(&device.runtime())) ++world->num_pins;
  num_foreign_events.fetch_add(1, std::memory_order_release);
  return event;
}

void end_event(driver::Event event) {
  driver::Driver& driver = driver_of(event);
  driver.destroy_event(event);
  if (num_foreign_events.load(std::memory_order_acquire) == 0) [[likely]] {
    return;
  }
  Worlds& worlds = worlds_of_process();
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  const auto found = worlds.events.find(event);
  if (found == worlds.events.end()) return;
  if (World* world = worlds.find(found->second.world)) --world->num_pins;
  worlds.events.erase(found);
  num_foreign_events.fetch_sub(1, std::memory_order_release);
}

namespace worlds {

Runtime* program() noexcept {
  Runtime* const own = the_program.load(std::memory_order_acquire);
  return own != nullptr ? own : seen();
}

namespace {

// Those that nothing belongs to any more, but the last: a thread may be within a call on it. With the lock
// held; destroyed by the caller, without it.
std::vector<World> take_unused(Worlds& worlds) {
  std::vector<World> unused;
  for (size_t i = 0; i + 1 < worlds.all.size();) {
    if (worlds.all[i].is_over && is_unused(worlds.all[i])) {
      unused.push_back(std::move(worlds.all[i]));
      worlds.all.erase(worlds.all.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return unused;
}

}  // namespace

std::string enter(const Config& config) {
  Worlds& worlds = worlds_of_process();
  std::vector<World> unused;
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  if (detail::world.load() != 0) return "a dry run is under way, and one cannot be within another";
  if (capture::is_underway()) return "it cannot begin while a graph is being captured";
  auto runtime = std::make_unique<Runtime>(config, worlds.next_number);
  unused = take_unused(worlds);
  the_program.store(seen(), std::memory_order_release);
  Runtime& entered = *runtime;
  worlds.all.push_back({std::move(runtime)});
  detail::others.store(true);
  detail::world.store(worlds.next_number++);
  detail::instance.store(&entered, std::memory_order_release);
  return {};
}

void leave() noexcept {
  if (detail::world.load() == 0) return;
  Runtime& over = *seen();
  capture::abort_all();  // none was under way at the beginning
  detail::world.store(0);
  detail::instance.store(the_program.load(), std::memory_order_release);
  for (int index = 0; index < over.device_count(); ++index) {
    try {
      over.device(index).allocator->empty_cache();
    } catch (const Error&) {
      // What could not be given back goes with its driver.
    }
  }
  Worlds& worlds = worlds_of_process();
  std::vector<World> unused;
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  worlds.find(&over)->is_over = true;
  unused = take_unused(worlds);
}

Pin::Pin(Runtime& world) noexcept {
  if (world.world() == 0) return;
  Worlds& worlds = worlds_of_process();
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  World* const found = worlds.find(&world);
  if (found == nullptr) return;
  ++found->num_pins;
  world_ = &world;
}

Pin::Pin(Pin&& other) noexcept : world_(std::exchange(other.world_, nullptr)) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  std::swap(world_, other.world_);
  return *this;
}

Pin::~Pin() {
  if (world_ == nullptr) return;
  Worlds& worlds = worlds_of_process();
  const std::lock_guard<std::mutex> lock(worlds.mutex);
  if (World* const found = worlds.find(world_)) --found->num_pins;
}

}  // namespace worlds

}  // namespace loom::runtime
