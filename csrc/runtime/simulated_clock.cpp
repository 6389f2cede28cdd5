#include "runtime/simulated_clock.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/costs.h"
#include "runtime/joint_steps.h"
#include "runtime/time_lines.h"
#include "runtime/worlds.h"
#include "util/spin.h"
#include "util/thread_local.h"

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

// The most steps, of 40 bytes, and the most unknown costs, of a kilobyte at most, that are deferred until a
// time is read: a program that reads none computes none, unless it is long, and then it computes each cost
// once.
constexpr size_t kMaxSteps = 1 << 20;
constexpr size_t kMaxUnknown = 1 << 17;
// That are laid on the time lines while other threads' commands wait.
constexpr size_t kStepsAtOnce = 1 << 12;

// Of a thread; looked up once a command.
struct Own {
  Span last;
  int64_t last_cost = kNoCost;
  int64_t said_ns = -1;
  bool is_joined = false;
  int replays = 0;  // that it is within
};
LOOM_FAST_ACCESS constinit thread_local Own own;

class Clock final : public TapeReader, public clock::Source {
 public:
  explicit Clock(const Estimator& estimator)
      : TapeReader(kBegins, kEnds, kinds_of({CommandKind::kKernel})),
        describe_(estimator.describe),
        costs_(estimator) {
    seen_ = &worlds_[0];
  }

  int64_t now_ns() noexcept override { return world().host_ns.load(std::memory_order_relaxed); }

  void begin(const Command& command) override {
    if (command.is_captured) return;
    if (command.kind == CommandKind::kReplay) {
      figures_of(command.device);
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      submit(step_of(command, Act::kIssueReplay));
      ++own.replays;
      return;
    }
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    submit(step_of(command, command.kind == CommandKind::kQueryStream  ? Act::kSynchronizeStream
                            : command.kind == CommandKind::kQueryEvent ? Act::kSynchronizeEvent
                                                                       : Act::kDestroyEvent));
  }

  void end(const Command& command) override {
    if (command.kind == CommandKind::kReplay) {
      --own.replays;
      return;
    }
    if (command.is_captured || command.has_failed) {
      own.last = {};
      return;
    }
    switch (command.kind) {
      case CommandKind::kKernel:
        own.last_cost = kNoCost;
        if (!run_known(command)) run(command);
        break;
      case CommandKind::kCopy:
      case CommandKind::kFill:
        move(command);
        break;
      default:
        order(command);
        break;
    }
    if (must_settle_.load(std::memory_order_relaxed)) [[unlikely]] {
      settle();
    }
  }

  bool decides_cost(const char* argument) const noexcept { return costs_.known().decides(argument); }

  void run_kernel(int device, int64_t stream, int64_t cost) {
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      World& world = this->world();
      Step step = step_of(world, device, place_of(stream));
      costs_.find_number(step, cost);
      if (step.unknown == nullptr) {
        run(world, world.line_of(device), device, step.place, step.nanoseconds);
      } else {
        submit(step);
      }
    }
    if (must_settle_.load(std::memory_order_relaxed)) [[unlikely]] {
      settle();
    }
  }

  std::shared_ptr<Joint> join(int device, int64_t stream, int64_t nanoseconds) {
    // So that it is known when this process is ready, whether or not it reads times.
    settle();
    figures_of(device);
    auto joint = std::make_shared<Joint>();
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    Step step = step_of(world(), device, place_of(stream));
    step.nanoseconds = nanoseconds;
    step.joint = joint.get();
    joint_steps_.hold(joint);
    submit(step);
    return joint;
  }

  void begin(Joint& joint, int64_t begins_ns) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    joint_steps_.begin(joint, begins_ns);
  }

  int64_t ready_ns(const Joint& joint) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    return joint_steps_.ready_ns(joint);
  }

  int64_t host_ns() {
    settle();
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    joint_steps_.refresh();
    return now_ns();
  }

  int64_t device_ns(int device) {
    settle();
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    joint_steps_.refresh();
    World& world = this->world();
    return std::max(world.host_ns.load(std::memory_order_relaxed), world.line_of(device).busy_until());
  }

  int64_t stream_ns(int device, int64_t stream) {
    settle();
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    joint_steps_.refresh();
    World& world = this->world();
    const DeviceLine& line = world.line_of(device);
    const int64_t issued = world.host_ns.load(std::memory_order_relaxed) + line.figures.issue_ns;
    return std::max(issued, line.streams[place_of(stream)]);
  }

  bool elapsed_ns(driver::Event start, driver::Event end, int64_t* nanoseconds) {
    settle();
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    joint_steps_.refresh();
    World& world = this->world();
    const auto first = world.events.find(start), second = world.events.find(end);
    if (first == world.events.end() || second == world.events.end()) return false;
    *nanoseconds = second->second - first->second;
    return true;
  }

  // Asks for the costs of all that has been put off, and lays it on the time lines. No lock is held while the
  // estimator works, which needs the interpreter's. What it throws leaves the steps put off.
  void settle() {
    Unknowns asked;
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      if (steps_.empty()) return;
      asked = costs_.unknown();
    }
    costs_.ask(asked);
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      costs_.learn(asked);
    }
    for (bool is_done = false; !is_done;) {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      is_done = catch_up();
    }
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

  // A dry run begins or ends: rare. Worlds are never freed, since any thread may read their time.
  [[gnu::noinline]] void find_world(int64_t number) noexcept {
    const std::lock_guard<std::mutex> lock(worlds_mutex_);
    seen_.store(&worlds_[number], std::memory_order_release);
    seen_number_.store(number, std::memory_order_release);
  }

  DeviceFigures figures_of(int device) {
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      const DeviceLine& line = world().line_of(device);
      if (line.is_described) [[likely]] {
        return line.figures;
      }
    }
    const DeviceFigures figures = describe_(device);
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    DeviceLine& line = world().line_of(device);
    line.figures = figures;
    line.is_described = true;
    joint_steps_.describe(world(), device, figures);
    return figures;
  }

  // The path of every op: one lock, no allocation while nothing is put off.
  bool run_known(const Command& command) {
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    World& world = this->world();
    DeviceLine& line = world.line_of(command.device);
    if (!line.is_described || command.op == nullptr) return false;
    const int64_t nanoseconds = costs_.known().find(costs_.known().key_of(line.figures.chip, command));
    if (nanoseconds < 0) return false;
    own.last_cost = nanoseconds;
    run(world, line, command.device, place_of(command.stream), nanoseconds);
    return true;
  }

  // With the mutex held: a kernel of known cost.
  void run(World& world, DeviceLine& line, int device, size_t place, int64_t nanoseconds) {
    if (steps_.empty() && joint_steps_.empty()) [[likely]] {
      own.last = lay(world, line, place, nanoseconds, own.replays == 0);
      return;
    }
    Step step = step_of(world, device, place);
    step.nanoseconds = nanoseconds;
    submit(step);
  }

  static Step step_of(World& world, int device, size_t place) {
    Step step;
    step.world = &world;
    step.device = device;
    step.place = static_cast<uint16_t>(place);
    step.is_issued = own.replays == 0;
    return step;
  }

  // A kernel whose cost is not known yet, or that is no op.
  void run(const Command& command) {
    if (command.op == nullptr && own.is_joined) return;
    Step step = step_of(command, Act::kRun);
    if (command.op == nullptr) {
      step.waits_for_flag = std::strcmp(command.name, kWaitsForFlag) == 0;
      step.clears_flag = std::strcmp(command.name, kClearsFlag) == 0;
    }
    const uint32_t chip = figures_of(command.device).chip;
    if (command.op == nullptr && own.said_ns >= 0) {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      step.nanoseconds = own.said_ns;
      return submit(step);
    }
    submit(step, costs_.known().key_of(chip, command), [&](Unknown& unknown) {
      unknown.chip = chip;
      unknown.name = command.name;
      unknown.record = KeptRecord({command.op, command.inputs, command.attributes}, command.outputs);
    });
  }

  void move(const Command& command) {
    const auto kind = command.kind == CommandKind::kFill ? Move::kFill : move_of(command);
    const bool is_transfer = kind != Move::kOnDevice && kind != Move::kFill;
    const uint32_t chip = figures_of(command.device).chip;
    Step step = step_of(command, is_transfer ? Act::kTransfer : Act::kRun);
    step.is_to_device = kind == Move::kHostToDevice || kind == Move::kHostToDevicePinned;
    step.keeps_host = kind == Move::kHostToDevice || kind == Move::kDeviceToHost;
    if (command.bytes == 0) {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      return submit(step);
    }
    submit(step, CostCache::key_of(chip, static_cast<int>(kind), command.bytes), [&](Unknown& unknown) {
      unknown.chip = chip;
      unknown.is_move = true;
      unknown.move = kind;
      unknown.bytes = command.bytes;
    });
  }

  // A step whose cost has this key; `describe` fills in what the estimator must know where it is new.
  template <typename F>
  void submit(Step step, const CallKey& key, const F& describe) {
    {
      const std::lock_guard<driver::SpinMutex> lock(mutex_);
      if (costs_.find(step, key)) return submit_noted(step);
    }
    auto unknown = std::make_shared<Unknown>();
    unknown->key = key;
    describe(*unknown);
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    if (!costs_.find(step, key)) costs_.put_off(step, std::move(unknown));
    submit_noted(step);
  }

  // With the mutex held.
  void submit_noted(const Step& step) {
    if (step.unknown != nullptr) own.last_cost = step.unknown->number;
    submit(step);
  }

  Step step_of(const Command& command, Act act) {
    Step step;
    step.world = &world();
    step.event = command.event;
    step.device = command.device;
    step.place = static_cast<uint16_t>(place_of(command.stream));
    step.act = act;
    step.is_issued = own.replays == 0;
    return step;
  }

  // With the mutex held: takes a step now, or behind what has been put off.
  void submit(const Step& step) {
    if (steps_.empty() && step.unknown == nullptr) {
      if (tape::num_readers() > 1) joint_steps_.refresh();
      own.last = joint_steps_.take(step, step.nanoseconds);
      return;
    }
    steps_.push_back(step);
    if (steps_.size() >= kMaxSteps || costs_.num_unknown() >= kMaxUnknown || tape::num_readers() > 1) {
      must_settle_.store(true, std::memory_order_relaxed);
    }
  }

  // With the mutex held: takes some of the steps before the first whose cost is not known. False: there are
  // more of them, and other threads are let in before.
  bool catch_up() {
    for (size_t taken = 0; !steps_.empty(); ++taken) {
      if (taken == kStepsAtOnce) return false;
      const Step& step = steps_.front();
      const int64_t nanoseconds =
          step.unknown == nullptr ? step.nanoseconds : step.unknown->nanoseconds.load();
      if (nanoseconds < 0) return true;
      own.last = joint_steps_.take(step, nanoseconds);
      steps_.pop_front();
    }
    costs_.forget_unknown();
    must_settle_.store(false, std::memory_order_relaxed);
    return true;
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
    const Act act = command.kind == CommandKind::kRecordEvent         ? Act::kRecordEvent
                    : command.kind == CommandKind::kWaitEvent         ? Act::kWaitEvent
                    : command.kind == CommandKind::kSynchronizeEvent  ? Act::kSynchronizeEvent
                    : command.kind == CommandKind::kSynchronizeStream ? Act::kSynchronizeStream
                                                                      : Act::kSynchronizeDevice;
    const std::lock_guard<driver::SpinMutex> lock(mutex_);
    submit(step_of(command, act));
  }

  const std::function<DeviceFigures(int device)> describe_;
  driver::SpinMutex mutex_;
  Costs costs_;
  // What waits for costs, in the order of the program. They are asked for when a time is read, so that a
  // program which reads none does not pay for them.
  std::deque<Step> steps_;
  JointSteps joint_steps_;
  std::atomic<bool> must_settle_{false};
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

void settle() {
  if (is_on()) the_clock.load()->settle();
}

int64_t host_ns() { return is_on() ? the_clock.load()->host_ns() : clock::host_ns(); }

int64_t device_ns(int device) { return is_on() ? the_clock.load()->device_ns(device) : clock::host_ns(); }

int64_t stream_ns(int device, int64_t stream) {
  return is_on() ? the_clock.load()->stream_ns(device, stream) : clock::host_ns();
}

int64_t last_cost() noexcept { return own.last_cost; }
void forget_last_cost() noexcept { own.last_cost = kNoCost; }

bool decides_cost(const char* argument) { return the_clock.load()->decides_cost(argument); }

void run_kernel(int device, int64_t stream, int64_t cost) {
  the_clock.load()->run_kernel(device, stream, cost);
}

Span last_span() noexcept { return own.last; }

Said::Said(int64_t nanoseconds, bool is_joined) noexcept {
  own.said_ns = nanoseconds;
  own.is_joined = is_joined;
}
Said::~Said() {
  own.said_ns = -1;
  own.is_joined = false;
}
int64_t said_ns() noexcept { return own.said_ns; }

std::shared_ptr<Joint> join(int device, int64_t stream, int64_t nanoseconds) {
  return is_on() ? the_clock.load()->join(device, stream, nanoseconds) : nullptr;
}

int64_t Joint::ready_ns() const noexcept { return the_clock.load()->ready_ns(*this); }
void Joint::begin_at(int64_t begins_ns) noexcept { the_clock.load()->begin(*this, begins_ns); }

void note(CommandTimes& times) noexcept {
  times.began_ns = own.last.began_ns;
  times.ended_ns = own.last.ended_ns;
}

bool elapsed_ns(driver::Event start, driver::Event end, int64_t* nanoseconds) {
  return is_on() && the_clock.load()->elapsed_ns(start, end, nanoseconds);
}

}  // namespace loom::runtime::simulated
