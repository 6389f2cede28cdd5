// The simulated clock: a reader of the tape that lays every command on the time line of its stream. The host
// issues commands one after the other, each at a price; a stream runs its commands in order, and streams
// overlap; copies from and to the host take turns at a copy engine for each direction. How long a command
// takes is worked out once, by an estimator, and kept. The estimator is asked when a time is read: until then
// commands behind a command of unknown cost are put off, unless another reader of the tape needs times at
// once. Real time has no part in it: the same program gives the same times on every machine, in every launch
// mode and under every load.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "runtime/commands.h"
#include "runtime/timing.h"

namespace loom::runtime::simulated {

// What moves bytes, for an estimator that is asked about it.
enum class Move : uint8_t {
  kOnDevice,
  kHostToDevice,
  kHostToDevicePinned,
  kDeviceToHost,
  kDeviceToHostPinned,
  kPeer,
  kFill,
};
inline constexpr int kNumMoves = static_cast<int>(Move::kFill) + 1;

// What is known of a device's chip: a number that devices of one chip share, and what the host takes to issue
// a command.
struct DeviceFigures {
  uint32_t chip = 0;
  int64_t issue_ns = 0;
};

// Called with no lock of the clock's held, describe() in the issuing thread and the others in a thread that
// reads a time; each answer is kept. May throw.
struct Estimator {
  std::function<DeviceFigures(int device)> describe;
  std::function<int64_t(uint32_t chip, const char* name, const KernelRecord& kernel,
                        std::span<const Operand> outputs)>
      kernel_ns;
  std::function<int64_t(uint32_t chip, Move move, size_t bytes)> move_ns;
  // Of the attributes of kernels that kernel_ns() looks at: whatever else differs has the same cost.
  std::vector<std::string> attributes;
};

// From now on time is simulated, from 0 for a world that has not been simulated before. The first call's
// estimator stays. turn_off() gives back the host's time; calls are counted.
void turn_on(const Estimator& estimator);
void turn_off();

namespace detail {
extern std::atomic<bool> on;
}  // namespace detail

inline bool is_on() noexcept { return detail::on.load(std::memory_order_relaxed); }

// Works out what has been put off; may throw what the estimator throws. Called before another reader of times
// is attached. clock::now_ns() is read where none of this may happen: it may be behind what was put off.
void settle();

// Nanoseconds on the host's time line of the devices that the program sees.
int64_t host_ns();
// When all that was issued to a device will have run; the host's time where that is later.
int64_t device_ns(int device);
// When a command that is issued to a stream now would begin.
int64_t stream_ns(int device, int64_t stream);

// What a kernel costs: nanoseconds, or a number below −1 for a cost that is put off until a time is read. Who
// keeps it need not describe such a kernel again.
inline constexpr int64_t kNoCost = -1;
// The cost of the kernel that this thread reported last.
int64_t last_cost() noexcept;
void forget_last_cost() noexcept;
// Whether an argument of this name decides what a kernel costs.
bool decides_cost(const char* argument);
// A kernel that was not described has been issued, and has this cost.
void run_kernel(int device, int64_t stream, int64_t cost);

// When the last command that this thread issued runs; for other readers, at its end.
struct Span {
  int64_t began_ns = -1, ended_ns = -1;
};
Span last_span() noexcept;

// While it lives, kernels of this thread that are no ops take so long. `is_joined`: join() has put them on
// their time line already.
class Said {
 public:
  explicit Said(int64_t nanoseconds, bool is_joined = false) noexcept;
  ~Said();
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
};
// What is said now; −1: nothing.
int64_t said_ns() noexcept;

// A kernel that begins together with kernels of other processes. What waits for it stands on the time lines
// as if it began when this process is ready, and is moved once it is known when the others are. Any thread.
class Joint {
 public:
  // When this process is ready: final if what the kernel really waits for has run. −1: not known.
  int64_t ready_ns() const noexcept;
  // It begins then, or when this process is ready where that is later. Only the first call counts.
  void begin_at(int64_t begins_ns) noexcept;
  // For the time lines: this process is ready then. Returns when it begins, as far as that is known.
  int64_t lay(int64_t ready_ns) noexcept {
    ready_ns_ = ready_ns;
    return begins_ns_ < ready_ns ? ready_ns : begins_ns_;
  }

 private:
  friend class JointSteps;
  // Under the clock's lock.
  bool is_open_ = true;
  int64_t ready_ns_ = -1, begins_ns_ = -1;
};

// Puts such a kernel on its time line, behind what its stream has. Null: no time is simulated.
std::shared_ptr<Joint> join(int device, int64_t stream, int64_t nanoseconds);

// Notes that in the times of a command, at its end.
void note(CommandTimes& times) noexcept;

// Between two events that have been recorded, if both were while time was simulated.
bool elapsed_ns(driver::Event start, driver::Event end, int64_t* nanoseconds);

}  // namespace loom::runtime::simulated
