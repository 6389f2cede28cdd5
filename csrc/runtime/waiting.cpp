// The commands that wait or put work in order: synchronisation, queries, events. See commands.h.
#include "runtime/blocking.h"
#include "runtime/capture.h"
#include "runtime/commands.h"
#include "runtime/ipc/shared_events.h"
#include "runtime/simulated_clock.h"
#include "runtime/targets.h"
#include "runtime/worlds.h"

namespace loom::runtime {

namespace {

// Commands on an event concern no stream.
constexpr StreamRef kNoStream{-1, -1};

Command describe_event(CommandKind kind, driver::Event event) {
  Command command = describe(kind, kNoStream.device, kNoStream.id);
  command.event = event;
  return command;
}

void begin_wait(Issue& issue, CommandKind kind, StreamRef stream, driver::Event event = nullptr,
                bool is_captured = false) {
  Command& command = issue.describe(kind, stream);
  command.event = event;
  command.is_captured = is_captured;
  issue.begin();
}

// An event of another driver than the stream's: none can order the other's work.
bool is_foreign(const Device& device, driver::Event event) {
  return (get().has_several_drivers() || has_other_worlds()) && &driver_of(event) != &device.driver();
}

}  // namespace

// --- streams and devices ---

bool query_stream(StreamRef stream) {
  if (capture::is_underway()) capture::forbid_on(stream, "a query of a stream");
  const Target of(stream);
  const bool is_finished = of.driver.query_stream(of.stream);
  if (is_finished) note_finished(stream);
  return is_finished;
}

void synchronize_stream(StreamRef stream) {
  if (capture::is_underway()) capture::forbid_on(stream, "synchronisation with a stream");
  Issue issue;
  if (tape::is_told(CommandKind::kSynchronizeStream)) [[unlikely]] {
    begin_wait(issue, CommandKind::kSynchronizeStream, stream);
  }
  const Target of(stream);
  {
    const Interruptible wait;
    of.driver.synchronize_stream(of.stream);
  }
  issue.end();
}

void drain_stream(StreamRef stream) {
  const Target of(stream);
  of.driver.synchronize_stream(of.stream, driver::OnFailure::kKeep);
  note_finished(stream);
}

void wait_for_stream(StreamRef stream) {
  const Target of(stream);
  const Interruptible wait;
  of.driver.synchronize_stream(of.stream);
}

void synchronize_device(int device) {
  if (capture::is_underway()) capture::forbid_on_device(device, "synchronisation with a device");
  Issue issue;
  if (tape::is_told(CommandKind::kSynchronizeDevice)) [[unlikely]] {
    begin_wait(issue, CommandKind::kSynchronizeDevice, {device, -1});
  }
  {
    const Interruptible wait;
    get().device(device).synchronize();
  }
  issue.end();
}

void drain_device(int index) {
  const Device& device = get().device(index);
  for (const driver::Stream stream : device.streams()) {
    device.driver().synchronize_stream(stream, driver::OnFailure::kKeep);
  }
}

// --- events ---

driver::Event create_event(int device, driver::EventOptions options) {
  const driver::Event event = make_event(get().device(device), options);
  if (tape::is_told(CommandKind::kCreateEvent)) [[unlikely]] {
    try {
      tape::note(describe_event(CommandKind::kCreateEvent, event));
    } catch (...) {
      end_event(event);
      throw;
    }
  }
  return event;
}

void record_event(driver::Event event, StreamRef stream) {
  Issue issue;
  if (tape::is_told(CommandKind::kRecordEvent)) [[unlikely]] {
    begin_wait(issue, CommandKind::kRecordEvent, stream, event, is_captured(stream));
  }
  if (capture::is_underway() && shared_events::is_shared(event) && is_captured(stream)) {
    capture::forbid_on(stream, "an event that is shared with other processes");
  }
  if (!capture::is_underway() || !capture::keep_record(event, stream)) {
    const Target of(stream);
    if (is_foreign(of.device, event)) [[unlikely]] {
      throw InvalidArgument(
          "the event was first recorded on a device of another driver, or outside of this dry run: an event "
          "belongs to the devices where it was first recorded");
    }
    of.driver.record_event(event, of.stream);
    shared_events::recorded(event, stream);
  }
  issue.end();
}

void wait_event(StreamRef stream, driver::Event event) {
  Issue issue;
  if (tape::is_told(CommandKind::kWaitEvent)) [[unlikely]] {
    begin_wait(issue, CommandKind::kWaitEvent, stream, event, is_captured(stream));
  }
  const bool is_done =
      shared_events::wait(stream, event) || (capture::is_underway() && capture::keep_wait(stream, event));
  if (!is_done) {
    const Target of(stream);
    if (is_foreign(of.device, event)) [[unlikely]] {
      // A driver knows no other's events: the host waits.
      const Interruptible wait;
      call_blocking([&] { driver_of(event).synchronize_event(event); });
    } else {
      of.driver.wait_event(of.stream, event);
    }
  }
  issue.end();
}

bool query_event(driver::Event event) {
  if (capture::is_underway()) capture::forbid_on(event, "a query of an event");
  bool is_finished = false;
  if (!shared_events::query(event, &is_finished)) is_finished = driver_of(event).query_event(event);
  if (is_finished && tape::is_told(CommandKind::kQueryEvent)) [[unlikely]] {
    tape::note(describe_event(CommandKind::kQueryEvent, event));
  }
  return is_finished;
}

void synchronize_event(driver::Event event) {
  if (capture::is_underway()) capture::forbid_on(event, "synchronisation with an event");
  Issue issue;
  if (tape::is_told(CommandKind::kSynchronizeEvent)) [[unlikely]] {
    begin_wait(issue, CommandKind::kSynchronizeEvent, kNoStream, event);
  }
  {
    const Interruptible wait;
    if (!shared_events::synchronize(event)) driver_of(event).synchronize_event(event);
  }
  issue.end();
}

int64_t elapsed_ns(driver::Event start, driver::Event end) {
  if (capture::is_underway()) {
    for (const driver::Event event : {start, end}) capture::forbid_on(event, "the elapsed time of events");
  }
  driver::Driver& driver = driver_of(start);
  if (&driver != &driver_of(end)) {
    throw InvalidArgument("elapsed time: the two events belong to devices of different drivers");
  }
  // The driver says whether both have been recorded and reached, whatever the clock.
  int64_t nanoseconds = driver.elapsed_ns(start, end);
  if (simulated::is_on()) simulated::elapsed_ns(start, end, &nanoseconds);
  return nanoseconds;
}

void destroy_event(driver::Event event) {
  if (capture::is_underway()) capture::forget(event);
  if (tape::is_told(CommandKind::kDestroyEvent)) [[unlikely]] {
    tape::note(describe_event(CommandKind::kDestroyEvent, event));
  }
  shared_events::forget(event);
  end_event(event);
}

// --- untold ---

bool untold::query_stream(driver::Driver& driver, driver::Stream stream) {
  return driver.query_stream(stream);
}
void untold::drain_stream(driver::Driver& driver, driver::Stream stream) {
  driver.synchronize_stream(stream, driver::OnFailure::kKeep);
}
driver::Event untold::create_event(driver::Driver& driver) { return driver.create_event({/*timing=*/false}); }
void untold::record_event(driver::Driver& driver, driver::Event event, driver::Stream stream) {
  driver.record_event(event, stream);
}
void untold::wait_event(driver::Driver& driver, driver::Stream stream, driver::Event event) {
  driver.wait_event(stream, event);
}
bool untold::query_event(driver::Driver& driver, driver::Event event) { return driver.query_event(event); }
void untold::destroy_event(driver::Driver& driver, driver::Event event) { driver.destroy_event(event); }

}  // namespace loom::runtime
