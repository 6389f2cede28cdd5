// The only code that calls a driver's streams, events and copies. It reports each command to the tape's
// readers; a captured stream keeps the command instead of running it.
#pragma once

#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "driver/driver.h"
#include "runtime/tape.h"

namespace loom::runtime {

class Device;

struct StreamRef {
  int device;  // logical index
  int64_t id;  // 0 is the default stream
  bool operator==(const StreamRef& other) const { return device == other.device && id == other.id; }
};

// The stream that work of this thread goes to.
StreamRef current_stream_of(int device) noexcept;

// True when a kernel submitted now would run in this thread, before submit() returns.
bool runs_in_place(StreamRef stream);
// True when what is submitted to the stream is kept by a graph.
bool is_captured(StreamRef stream);
// Whether kernels are described: a reader wants them, or a graph keeps them and reports them at each replay.
bool is_kernel_described() noexcept;

// What the begin of a kernel reports to readers; see Command.
struct KernelRecord {
  const OpRecord* op = nullptr;
  std::span<const Operand> inputs{};
  std::span<const Attribute> attributes{};
};

// A command that is reported to the tape's readers, from begin to end, in one thread. Destroyed before end(),
// it has failed. Costs nothing until it is described.
class Issue {
 public:
  Issue() noexcept {}
  ~Issue() {
    if (state_ == State::kBegun) [[unlikely]] {
      end_failed();
    }
  }
  Issue(const Issue&) = delete;
  Issue& operator=(const Issue&) = delete;

  // A new command, to be filled in before begin(). A command that has begun but not ended has failed then.
  Command& describe(CommandKind kind, StreamRef stream) noexcept {
    return describe(kind, stream, name_of(kind));
  }
  Command& describe(CommandKind kind, StreamRef stream, const char* name) noexcept {
    if (state_ == State::kBegun) [[unlikely]] {
      end_failed();
    }
    state_ = State::kDescribed;
    return *new (&command_) Command(runtime::describe(kind, stream.device, stream.id, name));
  }
  // Notifies the readers. An exception from a reader propagates.
  void begin() {
    command_.times = command_.is_captured ? nullptr : &times_;
    state_ = State::kBegun;
    tape::begin(command_, told_);
  }
  bool is_described() const noexcept { return state_ != State::kNone; }
  // Once it is described.
  const Command& command() const noexcept { return command_; }
  // Of a kernel, where they are known.
  void set_inputs(std::span<const Operand> inputs) { command_.inputs = inputs; }
  void set_outputs(std::span<const Operand> outputs) { command_.outputs = outputs; }
  void end();
  // Where the times go that a reader wants; null when none does.
  const std::shared_ptr<CommandTimes>& times() const { return times_; }
  // From now on the return of the call is not timed.
  std::shared_ptr<CommandTimes> take_times() { return std::move(times_); }

 private:
  enum class State : uint8_t { kNone, kDescribed, kBegun, kEnded };
  void end_failed() noexcept;

  State state_ = State::kNone;
  union {
    Command command_;
  };
  tape::Told told_;
  std::shared_ptr<CommandTimes> times_;
};
static_assert(std::is_trivially_destructible_v<Command>);

// A stream whose kernels run in the caller's thread at this moment; asked for once per unreported kernel.
struct InPlace {
  driver::Driver* driver = nullptr;
  driver::Stream stream = nullptr;
  explicit operator bool() const noexcept { return driver != nullptr; }
};

// A described kernel on its way: begin(), submit(), end(), each once, in the thread that issues it. The
// record and what it points to stay until end().
class Launch {
 public:
  void begin(StreamRef stream, const char* name, const KernelRecord& record) {
    Command& command = issue_.describe(CommandKind::kKernel, stream, name);
    command.op = record.op;
    command.inputs = record.inputs;
    command.attributes = record.attributes;
    command.is_captured = runtime::is_captured(stream);
    issue_.begin();
  }
  bool has_begun() const noexcept { return issue_.is_described(); }
  // As runtime::submit(). `outputs`: where they are known already; a graph that keeps the kernel wants them.
  void submit(const driver::Kernel& kernel, std::span<const Operand> outputs = {});
  // The same, where the stream runs kernels in this thread.
  void run(const InPlace& place, const driver::Kernel& kernel);
  // `inputs`: as the kernel has left them.
  void end(std::span<const Operand> inputs, std::span<const Operand> outputs);

 private:
  StreamRef stream() const { return {issue_.command().device, issue_.command().stream}; }
  Issue issue_;
};

// As the driver's methods of the same names. While the stream is captured: a kernel is kept, to be run at
// each replay (its `run` is called any number of times before its `release`); a kernel that must run in
// place, a copy of pageable memory, a query and a synchronisation throw CaptureError and end the capture.
void submit(StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record = {},
            std::span<const Operand> outputs = {});
// The same of a kernel that is not captured; its end is reported once it has run.
void submit_and_wait(StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record,
                     std::span<const Operand> outputs);
// A kernel that would keep the caller where the stream is idle runs beside it, in stream order all the same.
void submit_aside(StreamRef stream, const driver::Kernel& kernel);
void copy(StreamRef stream, void* destination, const void* source, size_t bytes);
// A copy from or to pageable memory. Waits for all earlier work of the stream, and reports that wait too.
void copy_and_wait(StreamRef stream, void* destination, const void* source, size_t bytes);
// Moves bytes of a result from the host, where the kernel reported last has left them, to the result's
// memory.
void store_result(StreamRef stream, void* destination, const void* source, size_t bytes);
void fill(StreamRef stream, void* destination, uint8_t value, size_t bytes);
bool query_stream(StreamRef stream);
void synchronize_stream(StreamRef stream);
// Waits without raising a failure, which stays with the stream. Reported as a query that found the stream
// finished.
void drain_stream(StreamRef stream);
// Waits and raises a failure, and is not reported: a wait of ours, which no program may rely on.
void wait_for_stream(StreamRef stream);
// All streams of a device.
void synchronize_device(int device);
// The same without raising a failure, and not reported.
void drain_device(int device);

// For streams of this device, and of others with its driver.
driver::Event create_event(int device, driver::EventOptions options);
// A stream that waits for an event of a captured stream is captured from then on.
void record_event(driver::Event event, StreamRef stream);
void wait_event(StreamRef stream, driver::Event event);
bool query_event(driver::Event event);
void synchronize_event(driver::Event event);
int64_t elapsed_ns(driver::Event start, driver::Event end);
void destroy_event(driver::Event event);

// Empty unless a kernel that is submitted now would run in this thread.
InPlace in_place(StreamRef stream);
InPlace in_place(const Device& device, StreamRef stream);
// Runs a kernel there without reporting it: for kernels where is_kernel_described() was false.
void run(const InPlace& place, const driver::Kernel& kernel);

// The driver's methods of the same names, neither reported nor kept by a graph: the parts of a reported
// command, and the runtime's own bookkeeping (when a block is free, a page written), which no program issues.
namespace untold {

void submit(driver::Driver& driver, driver::Stream stream, const driver::Kernel& kernel);
void copy(driver::Driver& driver, driver::Stream stream, void* destination, const void* source, size_t bytes);
void fill(driver::Driver& driver, driver::Stream stream, void* destination, uint8_t value, size_t bytes);
bool query_stream(driver::Driver& driver, driver::Stream stream);
void drain_stream(driver::Driver& driver, driver::Stream stream);
driver::Event create_event(driver::Driver& driver);  // without timing
void record_event(driver::Driver& driver, driver::Event event, driver::Stream stream);
void wait_event(driver::Driver& driver, driver::Stream stream, driver::Event event);
bool query_event(driver::Driver& driver, driver::Event event);
void destroy_event(driver::Driver& driver, driver::Event event);

}  // namespace untold

}  // namespace loom::runtime
