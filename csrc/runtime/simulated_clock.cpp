#include "runtime/simulated_clock.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/cost_cache.h"
#include "runtime/worlds.h"
#include "util/spin.h"

namespace loom::runtime::simulated {

std::atomic<bool> detail::on{false};

namespace {

constexpr CommandKinds kEnds =
    kinds_of({CommandKind::kKernel, CommandKind::kCopy, CommandKind::kFill, CommandKind::kRecordEvent,
              CommandKind::kWaitEvent, CommandKind::kSynchronizeStream, CommandKind::kSynchronizeEvent,
              CommandKind::kSynchronizeDevice, CommandKind::kReplay});
constexpr CommandKinds kBegins = kinds_of(
    {CommandKind::kReplay, CommandKind::kQueryStream, CommandKind::kQueryEvent, CommandKind::kDestroyEvent});

constexpr const char* kWaitsForFlag = "busy_wait_for_flag";
constexpr const char* kClearsFlag = "clear_flag";

struct DeviceLine {
  bool is_described = false;
  DeviceFigures figures{};
  std::array<int64_t, kNumStreamIds> streams{};  // when each has run what was issued to it
  std::array<int64_t, 2> engines{};              // when each copy engine is free: from the host, to the host
  std::array<bool, kNumStreamIds> waits_for_flag{};
  int64_t busy_until() const { return *std::max_element(streams.begin(), streams.end()); }
};

// The devices that a program sees at a time.
struct World {
  std::atomic<int64_t> host_ns{0};
  std::vector<DeviceLine> devices;
  std::unordered_map<const void*, int64_t> events;  // when each was last recorded

  void host_reaches(int64_t time) noexcept {
    if (host_ns.load(std::memory_order_relaxed) < time) host_ns.store(time, std::memory_order_relaxed);
  }
};

size_t place_of(int64_t stream) noexcept {
  return static_cast<size_t>(stream & ((int64_t{1} << kStreamIdBits) - 1)) % kNumStreamIds;
}

thread_local Span last;
thread_local int64_t said_ns = -1;
thread_local int replays = 0;  // that this thread is within

class Clock final : public TapeReader, public clock::Source {
 public:
  explicit Clock(const Estimator& estimator)
      : TapeReader(kBegins, kEnds), estimator_(estimator), costs_(estimator.attributes) {
    seen_ = &worlds_[0];
  }

  int64_t now_ns() noexcept override { return world().host_ns.load(std::memory_order_relaxed); }

  void begin(const Command& command) override {
    if (command.is_captured) return;
    if (command.kind == CommandKind::kReplay) {
      const int64_t issue_ns = figures_of(command.device).issue_ns;
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      issue(world(), issue_ns);
      ++replays;
      return;
    }
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    if (command.kind == CommandKind::kQueryStream) {
      world.host_reaches(line_of(world, command.device).streams[place_of(command.stream)]);
    } else if (const auto found = world.events.find(command.event); found != world.events.end()) {
      if (command.kind == CommandKind::kQueryEvent) {
        world.host_reaches(found->second);
      } else {
        world.events.erase(found);
      }
    }
  }

  void end(const Command& command) override {
    if (command.kind == CommandKind::kReplay) {
      --replays;
      return;
    }
    last = {};
    if (command.is_captured || command.has_failed) return;
    switch (command.kind) {
      case CommandKind::kKernel:
        if (!run_known(command)) run(command, kernel_ns(command));
        return;
      case CommandKind::kCopy:
      case CommandKind::kFill:
        return move(command);
      default:
        return order(command);
    }
  }

  int64_t device_ns(int device) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    return std::max(world.host_ns.load(std::memory_order_relaxed), line_of(world, device).busy_until());
  }

  bool elapsed_ns(driver::Event start, driver::Event end, int64_t* nanoseconds) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    const auto first = world.events.find(start), second = world.events.find(end);
    if (first == world.events.end() || second == world.events.end()) return false;
    *nanoseconds = second->second - first->second;
    return true;
  }

 private:
  // With the mutex held, or for its host_ns alone.
  World& world() noexcept {
    const int64_t number = runtime::detail::world.load(std::memory_order_acquire);
    if (seen_number_.load(std::memory_order_acquire) != number) [[unlikely]] {
      find_world(number);
    }
    return *seen_.load(std::memory_order_acquire);
  }

  // A dry run begins or ends: rare, and worlds are kept for as long as somebody may read their time.
  [[gnu::noinline]] void find_world(int64_t number) noexcept {
    const std::lock_guard<std::mutex> lock(worlds_mutex_);
    seen_.store(&worlds_[number], std::memory_order_release);
    seen_number_.store(number, std::memory_order_release);
  }

  static DeviceLine& line_of(World& world, int device) {
    const auto index = static_cast<size_t>(device);
    if (index >= world.devices.size()) world.devices.resize(index + 1);
    return world.devices[index];
  }

  DeviceFigures figures_of(int device) {
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      const DeviceLine& line = line_of(world(), device);
      if (line.is_described) [[likely]] {
        return line.figures;
      }
    }
    const DeviceFigures figures = estimator_.describe(device);
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    DeviceLine& line = line_of(world(), device);
    line.figures = figures;
    line.is_described = true;
    return figures;
  }

  template <typename F>
  int64_t known(const CostKey& key, const F& estimate) {
    int64_t found = -1;
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      found = costs_.find(key);
    }
    if (found >= 0) [[likely]] {
      return found;
    }
    found = std::max<int64_t>(estimate(), 0);
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    costs_.insert(key, found);
    return found;
  }

  // The path of every op: one lock, no allocation.
  bool run_known(const Command& command) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    DeviceLine& line = line_of(world, command.device);
    if (!line.is_described || command.op == nullptr) return false;
    const int64_t nanoseconds = costs_.find(costs_.key_of(line.figures.chip, command));
    if (nanoseconds < 0) return false;
    lay(world, line, place_of(command.stream), nanoseconds);
    return true;
  }

  int64_t kernel_ns(const Command& command) {
    if (command.op == nullptr) [[unlikely]] {
      if (said_ns >= 0) return said_ns;
    }
    const uint32_t chip = figures_of(command.device).chip;
    return known(costs_.key_of(chip, command), [&] { return estimator_.kernel_ns(command.device, command); });
  }

  void issue(World& world, int64_t issue_ns) noexcept {
    if (replays == 0) world.host_ns.fetch_add(issue_ns, std::memory_order_relaxed);
  }

  // Puts what takes so long behind what its stream has.
  void run(const Command& command, int64_t nanoseconds) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    DeviceLine& line = line_of(world, command.device);
    const size_t place = place_of(command.stream);
    lay(world, line, place, nanoseconds);
    if (command.op == nullptr) follow_flag(line, command.name, place);
  }

  void lay(World& world, DeviceLine& line, size_t place, int64_t nanoseconds) noexcept {
    issue(world, line.figures.issue_ns);
    int64_t& stream = line.streams[place];
    const int64_t began = std::max(stream, world.host_ns.load(std::memory_order_relaxed));
    stream = began + nanoseconds;
    last = {began, stream};
  }

  // A stream that waits for the device's flag goes on when another has cleared it.
  static void follow_flag(DeviceLine& line, const char* name, size_t place) {
    if (std::strcmp(name, kWaitsForFlag) == 0) line.waits_for_flag[place] = true;
    if (std::strcmp(name, kClearsFlag) != 0) return;
    for (size_t other = 0; other < line.streams.size(); ++other) {
      if (!line.waits_for_flag[other]) continue;
      line.waits_for_flag[other] = false;
      line.streams[other] = std::max(line.streams[other], line.streams[place]);
    }
  }

  void move(const Command& command) {
    const auto kind = command.kind == CommandKind::kFill ? Move::kFill : move_of(command);
    int64_t nanoseconds = 0;
    if (command.bytes != 0) {
      const uint32_t chip = figures_of(command.device).chip;
      nanoseconds = known(CostCache::key_of(chip, static_cast<int>(kind), command.bytes),
                          [&] { return estimator_.move_ns(command.device, kind, command.bytes); });
    }
    if (kind == Move::kOnDevice || kind == Move::kFill) return run(command, nanoseconds);
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    DeviceLine& line = line_of(world, command.device);
    issue(world, line.figures.issue_ns);
    int64_t& stream = line.streams[place_of(command.stream)];
    const bool is_to_device = kind == Move::kHostToDevice || kind == Move::kHostToDevicePinned;
    int64_t& engine = line.engines[is_to_device ? 0 : 1];
    const int64_t began = std::max({stream, engine, world.host_ns.load(std::memory_order_relaxed)});
    stream = engine = began + nanoseconds;
    last = {began, stream};
    // Memory that may be paged out is copied with the host's help.
    if (kind == Move::kHostToDevice || kind == Move::kDeviceToHost) world.host_reaches(stream);
  }

  static Move move_of(const Command& command) {
    const Place to = locate(command.address), from = locate(command.source);
    using Kind = driver::AddressKind;
    if (to.kind == Kind::kDevice && from.kind == Kind::kDevice) {
      return to.device == from.device ? Move::kOnDevice : Move::kPeer;
    }
    if (to.kind == Kind::kDevice) {
      return from.kind == Kind::kPinnedHost ? Move::kHostToDevicePinned : Move::kHostToDevice;
    }
    return to.kind == Kind::kPinnedHost ? Move::kDeviceToHostPinned : Move::kDeviceToHost;
  }

  void order(const Command& command) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    const auto found = world.events.find(command.event);
    const int64_t event = found == world.events.end() ? 0 : found->second;
    switch (command.kind) {
      case CommandKind::kRecordEvent:
        world.events[command.event] =
            std::max(world.host_ns.load(std::memory_order_relaxed),
                     line_of(world, command.device).streams[place_of(command.stream)]);
        break;
      case CommandKind::kWaitEvent: {
        int64_t& stream = line_of(world, command.device).streams[place_of(command.stream)];
        stream = std::max(stream, event);
        break;
      }
      case CommandKind::kSynchronizeEvent:
        world.host_reaches(event);
        break;
      case CommandKind::kSynchronizeStream:
        world.host_reaches(line_of(world, command.device).streams[place_of(command.stream)]);
        break;
      case CommandKind::kSynchronizeDevice:
        world.host_reaches(line_of(world, command.device).busy_until());
        break;
      default:
        break;
    }
    last.began_ns = last.ended_ns = world.host_ns.load(std::memory_order_relaxed);
  }

  const Estimator estimator_;
  driver::SpinMutex mutex_;
  CostCache costs_;
  std::mutex worlds_mutex_;
  std::map<int64_t, World> worlds_;
  std::atomic<World*> seen_{nullptr};
  std::atomic<int64_t> seen_number_{0};
};

std::mutex& switch_mutex = *new std::mutex;
int num_turned_on = 0;
std::atomic<Clock*> the_clock{nullptr};  // made once and leaked: any thread may be reading it

const std::shared_ptr<TapeReader>& reader_of(Clock* made) {
  // Leaked, so that the tape may hold it while static objects are destroyed.
  static auto* const reader = new std::shared_ptr<TapeReader>(made, [](TapeReader*) {});
  return *reader;
}

}  // namespace

void turn_on(const Estimator& estimator) {
  const std::lock_guard<std::mutex> lock(switch_mutex);
  if (num_turned_on++ != 0) return;
  if (the_clock.load() == nullptr) the_clock = new Clock(estimator);
  tape::attach(reader_of(the_clock));
  clock::set_source(the_clock);
  detail::on = true;
}

void turn_off() {
  const std::lock_guard<std::mutex> lock(switch_mutex);
  if (num_turned_on == 0 || --num_turned_on != 0) return;
  detail::on = false;
  clock::set_source(nullptr);
  tape::detach(reader_of(the_clock));
}

int64_t host_ns() { return is_on() ? the_clock.load()->now_ns() : clock::host_ns(); }

int64_t device_ns(int device) { return is_on() ? the_clock.load()->device_ns(device) : clock::host_ns(); }

Span last_span() noexcept { return last; }

Said::Said(int64_t nanoseconds) noexcept { said_ns = nanoseconds; }
Said::~Said() { said_ns = -1; }

void note(CommandTimes& times) noexcept {
  times.began_ns = last.began_ns;
  times.ended_ns = last.ended_ns;
}

bool elapsed_ns(driver::Event start, driver::Event end, int64_t* nanoseconds) {
  return is_on() && the_clock.load()->elapsed_ns(start, end, nanoseconds);
}

}  // namespace loom::runtime::simulated
