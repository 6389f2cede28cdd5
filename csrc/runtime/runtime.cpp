#include "runtime/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/ipc/activity_board.h"
#include "util/thread_local.h"

namespace loom::runtime {

namespace detail {
std::atomic<Runtime*> instance{nullptr};
std::atomic<int64_t> world{0};
std::atomic<bool> bad_fork{false};
}  // namespace detail

namespace {

std::mutex init_mutex;
std::function<void()> initializer;
void (*device_hook)(Device&) = nullptr;

// What a thread has chosen among the devices of one world.
struct Choice {
  int64_t world = 0;
  int device = 0;
  std::vector<int64_t> streams;
};
struct Choices {
  Choice of_program, of_dry_run;  // the latter of the dry run seen last
};
// Null while the thread has chosen nothing: the first device, and default streams.
LOOM_FAST_ACCESS constinit thread_local Choices* choices = nullptr;

const Choice* choice() noexcept {
  const Choices* const own = choices;
  if (own == nullptr) return nullptr;
  const int64_t world = detail::world.load(std::memory_order_relaxed);
  const Choice& latest = world == 0 ? own->of_program : own->of_dry_run;
  return latest.world == world ? &latest : nullptr;
}

Choice& choice_to_change() {
  struct Owner {
    ~Owner() { delete std::exchange(choices, nullptr); }
  };
  static thread_local const Owner owner;
  (void)&owner;
  // What a thread chooses while its own objects are destroyed is leaked.
  if (choices == nullptr) choices = new Choices;
  const int64_t world = detail::world.load(std::memory_order_relaxed);
  if (world == 0) return choices->of_program;
  Choice& latest = choices->of_dry_run;
  if (latest.world != world) latest = {world, 0, {}};
  return latest;
}

driver::Launch launch_of(const std::string& name) {
  if (name == "auto") return driver::Launch::kAuto;
  if (name == "blocking") return driver::Launch::kBlocking;
  if (name == "chaos") return driver::Launch::kChaos;
  throw InvalidArgument("launch must be auto, blocking or chaos, got '" + name + "'");
}

void after_fork_in_child() { detail::bad_fork.store(true); }

void check_physical(const Config& config) {
  for (const DeviceConfig& device : config.devices) {
    const auto is_same = [&](const DeviceConfig& other) { return other.physical == device.physical; };
    if (device.physical < 0 || std::count_if(config.devices.begin(), config.devices.end(), is_same) != 1) {
      throw InvalidArgument("physical devices must be 0 or more, each named once, got " +
                            std::to_string(device.physical));
    }
  }
}

}  // namespace

Runtime::Runtime(const Config& config, int64_t world)
    : config_(config), world_(world), drawn_(config.chaos_seed) {
  check_physical(config);
  create_drivers();
  for (const Shared& each : drivers_) {
    is_fenced_ |= !each.driver->info().unified_addresses;
  }
  for (const DeviceConfig& own : config.devices) {
    has_lazy_devices_ |= own.lazy;
    Shared& each = *std::find_if(drivers_.begin(), drivers_.end(),
                                 [&](const Shared& shared) { return shared.name == own.driver; });
    const int logical = static_cast<int>(devices_.size());
    const int driver_index = static_cast<int>(each.devices.size());
    devices_.push_back(std::make_unique<Device>(*this, own, logical, *each.driver, driver_index));
    each.devices.push_back(devices_.back().get());
    if (device_hook != nullptr) device_hook(*devices_.back());
  }
}

// One driver of each name that the devices ask for, in the order of the devices.
void Runtime::create_drivers() {
  std::vector<std::pair<std::string, std::vector<int64_t>>> wanted;
  for (const DeviceConfig& device : config_.devices) {
    const auto found = std::find_if(wanted.begin(), wanted.end(),
                                    [&](const auto& each) { return each.first == device.driver; });
    auto& each = found == wanted.end() ? wanted.emplace_back(device.driver, std::vector<int64_t>{}) : *found;
    each.second.push_back(device.memory_bytes);
  }
  for (const auto& [name, memory_bytes] : wanted) {
    driver::DriverConfig settings{static_cast<int>(memory_bytes.size()), memory_bytes.front(),
                                  launch_of(config_.launch), config_.chaos_seed, config_.protect};
    const bool are_alike = std::count(memory_bytes.begin(), memory_bytes.end(), memory_bytes.front()) ==
                           static_cast<std::ptrdiff_t>(memory_bytes.size());
    if (!are_alike) settings.device_memory_bytes = memory_bytes;
    drivers_.push_back({name, driver::create_driver(name, settings), {}});
  }
}

std::optional<uint64_t> Runtime::draw() noexcept {
  if (config_.launch != "chaos") return std::nullopt;
  // SplitMix64 (Steele, Lea, Flood 2014).
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  uint64_t number = drawn_.fetch_add(kStep, std::memory_order_relaxed) + kStep;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return number ^ number >> 31;
}

void Runtime::set_chaos_seed(uint64_t seed) {
  drawn_.store(seed, std::memory_order_relaxed);
  for (const Shared& each : drivers_) driver::set_chaos_seed(*each.driver, seed);
}

void Runtime::throw_no_device(int index) const {
  throw InvalidArgument("invalid device index " + std::to_string(index) + ": " +
                        (devices_.empty() ? "there is no device"
                                          : "the devices are 0 … " + std::to_string(device_count() - 1)));
}

std::pair<int, int64_t> Runtime::find_stream(const void* handle) const noexcept {
  for (const auto& device : devices_) {
    if (const int64_t id = device->find_stream(handle); id >= 0) return {device->logical, id};
  }
  return {-1, 0};
}

Place Runtime::locate(const void* address) const noexcept {
  for (const Shared& each : drivers_) {
    const driver::Address where = each.driver->locate(address);
    if (where.kind == driver::AddressKind::kUnknown) continue;
    const bool is_device = where.kind == driver::AddressKind::kDevice;
    return {where.kind, is_device ? each.devices[static_cast<size_t>(where.device)] : nullptr,
            where.device_address, where.engine_address};
  }
  return {driver::AddressKind::kUnknown, nullptr, const_cast<void*>(address), const_cast<void*>(address)};
}

void set_device_hook(void (*hook)(Device&)) noexcept { device_hook = hook; }

void set_initializer(std::function<void()> callback) {
  std::lock_guard<std::mutex> lock(init_mutex);
  initializer = std::move(callback);
}

void initialize(const Config& config) {
  std::lock_guard<std::mutex> lock(init_mutex);
  if (is_initialized()) throw InvalidArgument("the devices are initialised already");
  std::vector<activity_board::Listed> listed;
  for (const DeviceConfig& device : config.devices) listed.push_back({device.physical, device.chip.name});
  activity_board::start(listed);
  // Leaked on purpose: tensors held by other static objects are freed after this file's statics would be.
  auto runtime = std::make_unique<Runtime>(config);
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  detail::instance.store(runtime.release(), std::memory_order_release);
}

bool is_initialized() noexcept { return detail::instance.load(std::memory_order_acquire) != nullptr; }

Runtime& detail::get_slow() {
  if (bad_fork.load()) {
    throw Unusable("the devices cannot be used in a forked process");
  }
  std::function<void()> callback;
  {
    // Not held during the call: the callback takes Python's lock, which another thread may hold while waiting
    // here.
    std::lock_guard<std::mutex> lock(init_mutex);
    callback = initializer;
  }
  if (!is_initialized() && callback) callback();
  Runtime* runtime = instance.load(std::memory_order_acquire);
  if (runtime == nullptr) throw Unusable("the devices are not initialised: import torch_loom first");
  return *runtime;
}

int current_device() noexcept {
  const Choice* const own = choice();
  return own == nullptr ? 0 : own->device;
}

void set_current_device(int index) noexcept {
  if (index != current_device()) choice_to_change().device = index;
}

int64_t current_stream(int device) noexcept {
  const Choice* const own = choice();
  const auto index = static_cast<size_t>(device);
  return own != nullptr && index < own->streams.size() ? own->streams[index] : 0;
}

void set_current_stream(int device, int64_t stream) noexcept {
  std::vector<int64_t>& streams = choice_to_change().streams;
  const auto index = static_cast<size_t>(device);
  if (index >= streams.size()) streams.resize(index + 1, 0);
  streams[index] = stream;
}

}  // namespace loom::runtime
