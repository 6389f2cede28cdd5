#include "runtime/commands.h"

#include <utility>

#include "runtime/capture.h"
#include "runtime/ipc/shared_events.h"
#include "runtime/runtime.h"
#include "runtime/timing.h"

namespace loom::runtime {

namespace {

driver::Stream handle_of(StreamRef stream) { return get().stream(stream.device, stream.id); }

Command describe(CommandKind kind, const char* name, StreamRef stream) {
  Command command{};
  command.kind = kind;
  command.name = name;
  command.device = stream.device;
  command.stream = stream.id;
  return command;
}

CaptureRef capture_of(StreamRef stream) { return capture::is_underway() ? capture::of(stream) : nullptr; }

// Commands on an event concern no stream.
constexpr StreamRef kNoStream{-1, -1};

// The call that issues a command. A reader of the tape that wants to know its times leaves them here.
class Issue {
 public:
  Issue() = default;
  ~Issue() {
    if (times_ != nullptr) times_->returned_ns = timing::now_ns();
  }
  Issue(const Issue&) = delete;
  Issue& operator=(const Issue&) = delete;

  void notify(Command command) {
    if (!command.is_captured) command.times = &times_;
    tape::write(command);
  }
  const std::shared_ptr<CommandTimes>& times() const { return times_; }

 private:
  std::shared_ptr<CommandTimes> times_;
};

}  // namespace

StreamRef current_stream_of(int device) noexcept { return {device, current_stream(device)}; }

bool is_captured(StreamRef stream) { return capture::is_underway() && capture::of(stream) != nullptr; }

bool runs_in_place(StreamRef stream) {
  return get().driver().runs_in_place(handle_of(stream)) && !is_captured(stream);
}

namespace {

// A kernel that is refused on its way is released here; the driver and a capture release what they took.
class Refusal {
 public:
  explicit Refusal(const driver::Kernel& kernel) : kernel_(&kernel) {}
  ~Refusal() {
    if (kernel_ != nullptr && kernel_->release != nullptr) kernel_->release(kernel_->context);
  }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
  const driver::Kernel& pass_on() { return *std::exchange(kernel_, nullptr); }

 private:
  const driver::Kernel* kernel_;
};

}  // namespace

void submit(StreamRef stream, const driver::Kernel& kernel, const Operand* operands, size_t num_operands) {
  Refusal refusal(kernel);
  const CaptureRef keeper = capture_of(stream);
  if (keeper != nullptr && kernel.in_place) capture::forbid_on(stream, kernel.name);
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kKernel, kernel.name, stream);
    command.operands = operands;
    command.num_operands = num_operands;
    command.is_captured = keeper != nullptr;
    issue.notify(command);
  }
  if (keeper != nullptr) {
    capture::keep(*keeper, stream, refusal.pass_on(), operands, num_operands);
    return;
  }
  const driver::Stream handle = handle_of(stream);
  if (issue.times() != nullptr) [[unlikely]] {
    timing::submit(handle, refusal.pass_on(), issue.times());
  } else {
    get().driver().submit(handle, refusal.pass_on());
  }
}

void copy(StreamRef stream, void* destination, const void* source, size_t bytes) {
  driver::Driver& driver = get().driver();
  const CaptureRef keeper = capture_of(stream);
  if (bytes != 0 && capture::is_underway()) {
    for (const void* side : {static_cast<const void*>(destination), source}) {
      if (driver.locate(side).kind == driver::AddressKind::kUnknown) {
        capture::forbid_on(stream, "a copy of host memory that is not pinned");
      }
    }
  }
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kCopy, "copy", stream);
    command.address = destination;
    command.source = source;
    command.bytes = bytes;
    command.is_captured = keeper != nullptr;
    issue.notify(command);
  }
  if (keeper != nullptr) {
    capture::keep_copy(*keeper, stream, destination, source, bytes);
  } else if (issue.times() != nullptr) [[unlikely]] {
    timing::copy(handle_of(stream), destination, source, bytes, issue.times());
  } else {
    driver.copy(handle_of(stream), destination, source, bytes);
  }
}

void fill(StreamRef stream, void* destination, uint8_t value, size_t bytes) {
  const CaptureRef keeper = capture_of(stream);
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kFill, "fill", stream);
    command.address = destination;
    command.bytes = bytes;
    command.is_captured = keeper != nullptr;
    issue.notify(command);
  }
  if (keeper != nullptr) {
    capture::keep_fill(*keeper, stream, destination, value, bytes);
  } else if (issue.times() != nullptr) [[unlikely]] {
    timing::fill(handle_of(stream), destination, value, bytes, issue.times());
  } else {
    get().driver().fill(handle_of(stream), destination, value, bytes);
  }
}

bool query_stream(StreamRef stream) {
  if (capture::is_underway()) capture::forbid_on(stream, "a query of a stream");
  const bool is_finished = get().driver().query_stream(handle_of(stream));
  if (is_finished && tape::is_read()) [[unlikely]] {
    tape::write(describe(CommandKind::kQueryStream, "query_stream", stream));
  }
  return is_finished;
}

void synchronize_stream(StreamRef stream) {
  if (capture::is_underway()) capture::forbid_on(stream, "synchronisation with a stream");
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    issue.notify(describe(CommandKind::kSynchronizeStream, "synchronize_stream", stream));
  }
  get().driver().synchronize_stream(handle_of(stream));
}

void synchronize_device(int device) {
  if (capture::is_underway()) capture::forbid_on_device(device, "synchronisation with a device");
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    issue.notify(describe(CommandKind::kSynchronizeDevice, "synchronize_device", {device, -1}));
  }
  get().synchronize(device);
}

driver::Event create_event(driver::EventOptions options) {
  const driver::Event event = get().driver().create_event(options);
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kCreateEvent, "create_event", kNoStream);
    command.event = event;
    try {
      tape::write(command);
    } catch (...) {
      get().driver().destroy_event(event);
      throw;
    }
  }
  return event;
}

void record_event(driver::Event event, StreamRef stream) {
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kRecordEvent, "record_event", stream);
    command.event = event;
    command.is_captured = is_captured(stream);
    issue.notify(command);
  }
  if (capture::is_underway()) {
    if (shared_events::is_shared(event) && is_captured(stream)) {
      capture::forbid_on(stream, "an event that is shared with other processes");
    }
    if (capture::keep_record(event, stream)) return;
  }
  get().driver().record_event(event, handle_of(stream));
  shared_events::recorded(event, stream);
}

void wait_event(StreamRef stream, driver::Event event) {
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kWaitEvent, "wait_event", stream);
    command.event = event;
    command.is_captured = is_captured(stream);
    issue.notify(command);
  }
  if (shared_events::wait(stream, event)) return;
  if (capture::is_underway() && capture::keep_wait(stream, event)) return;
  get().driver().wait_event(handle_of(stream), event);
}

bool query_event(driver::Event event) {
  if (capture::is_underway()) capture::forbid_on(event, "a query of an event");
  bool is_finished = false;
  if (!shared_events::query(event, &is_finished)) is_finished = get().driver().query_event(event);
  if (is_finished && tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kQueryEvent, "query_event", kNoStream);
    command.event = event;
    tape::write(command);
  }
  return is_finished;
}

void synchronize_event(driver::Event event) {
  if (capture::is_underway()) capture::forbid_on(event, "synchronisation with an event");
  Issue issue;
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kSynchronizeEvent, "synchronize_event", kNoStream);
    command.event = event;
    issue.notify(command);
  }
  if (!shared_events::synchronize(event)) get().driver().synchronize_event(event);
}

int64_t elapsed_ns(driver::Event start, driver::Event end) {
  if (capture::is_underway()) {
    for (const driver::Event event : {start, end}) capture::forbid_on(event, "the elapsed time of events");
  }
  return get().driver().elapsed_ns(start, end);
}

void destroy_event(driver::Event event) {
  if (capture::is_underway()) capture::forget(event);
  if (tape::is_read()) [[unlikely]] {
    Command command = describe(CommandKind::kDestroyEvent, "destroy_event", kNoStream);
    command.event = event;
    tape::write(command);
  }
  shared_events::forget(event);
  get().driver().destroy_event(event);
}

}  // namespace loom::runtime
