#include "runtime/commands.h"

#include <utility>

#include "runtime/blocking.h"
#include "runtime/capture.h"
#include "runtime/ipc/shared_events.h"
#include "runtime/peer_copy.h"
#include "runtime/simulated_clock.h"
#include "runtime/timing.h"
#include "runtime/worlds.h"

namespace loom::runtime {

namespace {

// A stream as its driver knows it.
struct Target {
  explicit Target(StreamRef stream)
      : device(get().device(stream.device)), driver(device.driver()), stream(device.stream(stream.id)) {}
  Target(Device& own, driver::Stream handle) : device(own), driver(own.driver()), stream(handle) {}
  Device& device;
  driver::Driver& driver;
  const driver::Stream stream;
};

// Commands on an event concern no stream.
constexpr StreamRef kNoStream{-1, -1};

Command describe_event(CommandKind kind, driver::Event event) {
  Command command = describe(kind, kNoStream.device, kNoStream.id);
  command.event = event;
  return command;
}

void note_finished(StreamRef stream) {
  if (tape::is_told(CommandKind::kQueryStream)) [[unlikely]] {
    tape::note(describe(CommandKind::kQueryStream, stream.device, stream.id));
  }
}

void begin_move(Issue& issue, CommandKind kind, StreamRef stream, void* destination, const void* source,
                size_t bytes, bool is_captured) {
  Command& command = issue.describe(kind, stream);
  command.address = destination;
  command.source = source;
  command.bytes = bytes;
  command.is_captured = is_captured;
  issue.begin();
}

void begin_wait(Issue& issue, CommandKind kind, StreamRef stream, driver::Event event = nullptr,
                bool is_captured = false) {
  Command& command = issue.describe(kind, stream);
  command.event = event;
  command.is_captured = is_captured;
  issue.begin();
}

CaptureRef capture_of(StreamRef stream) { return capture::is_underway() ? capture::of(stream) : nullptr; }

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

// Submits a kernel, whose times go to `times` if anybody wants them.
void submit_timed(driver::Driver& driver, driver::Stream stream, Refusal& kernel,
                  const timing::Shared& times) {
  if (times == nullptr) [[likely]] {
    driver.submit(stream, kernel.pass_on());
  } else if (!driver.info().executes_kernels) {
    timing::note_not_run(*times);
    driver.submit(stream, kernel.pass_on());
  } else {
    const driver::Kernel timed = timing::timed(kernel.pass_on(), times);
    driver.submit(stream, timed);
  }
}

// Runs `work`, calls of the driver for this very stream, as a kernel, so that it can be timed: what a kernel
// submits to its own stream is part of it.
template <typename F>
void submit_as_kernel(const Target& to, const char* name, bool in_place, F work,
                      const timing::Shared& times) {
  const auto run = [](void* context, driver::Stream) { (*static_cast<F*>(context))(); };
  const auto release = [](void* context) { delete static_cast<F*>(context); };
  const driver::Kernel kernel{name, run, release, new F(std::move(work)), in_place};
  Refusal refusal(kernel);
  submit_timed(to.driver, to.stream, refusal, times);
}

bool is_pageable(const void* address) { return locate(address).kind == driver::AddressKind::kUnknown; }

void copy_timed(const Target& to, void* destination, const void* source, size_t bytes,
                const timing::Shared& times) {
  if (get().has_several_drivers() && copy_between_drivers(to.device, to.stream, destination, source, bytes)) {
    if (times != nullptr) timing::note_not_run(*times);
  } else if (times == nullptr) [[likely]] {
    to.driver.copy(to.stream, destination, source, bytes);
  } else if (bytes == 0 || destination == nullptr || source == nullptr || !to.device.runs_kernels()) {
    timing::note_not_run(*times);
    to.driver.copy(to.stream, destination, source, bytes);
  } else {
    submit_as_kernel(
        to, "copy", is_pageable(destination) || is_pageable(source),
        [=, &driver = to.driver, stream = to.stream] { driver.copy(stream, destination, source, bytes); },
        times);
  }
}

void fill_timed(const Target& to, void* destination, uint8_t value, size_t bytes,
                const timing::Shared& times) {
  if (times == nullptr) [[likely]] {
    to.driver.fill(to.stream, destination, value, bytes);
  } else if (bytes == 0 || destination == nullptr || !to.device.runs_kernels()) {
    timing::note_not_run(*times);
    to.driver.fill(to.stream, destination, value, bytes);
  } else {
    submit_as_kernel(
        to, "fill", /*in_place=*/false,
        [=, &driver = to.driver, stream = to.stream] { driver.fill(stream, destination, value, bytes); },
        times);
  }
}

// An event of another driver than the stream's: none can order the other's work.
bool is_foreign(const Device& device, driver::Event event) {
  return (get().has_several_drivers() || has_other_worlds()) && &driver_of(event) != &device.driver();
}

}  // namespace

// --- telling ---

void Issue::begin() {
  command_->times = command_->is_captured ? nullptr : &times_;
  is_over_ = false;
  tape::begin(*command_, told_);
  if (times_ != nullptr && simulated::is_on()) simulated_times_ = std::move(times_);
}

void Issue::end() {
  if (is_over_) return;
  is_over_ = true;
  if (times_ != nullptr) times_->returned_ns = clock::now_ns();
  if (!tape::is_end_told(command_->kind)) return;
  command_->times = nullptr;
  tape::end(*command_, told_);
  if (simulated_times_ != nullptr) simulated::note(*simulated_times_);
}

Issue::~Issue() {
  if (is_over_) return;
  command_->has_failed = true;
  try {
    end();
  } catch (...) {  // what made the command fail is on its way
  }
}

void Launch::begin(StreamRef stream, const char* name, const KernelRecord& record) {
  stream_ = stream;
  record_ = record;
  Command& command = issue_.describe(CommandKind::kKernel, stream);
  command.name = name;
  command.op = record.op;
  command.inputs = record.inputs;
  command.attributes = record.attributes;
  command.is_captured = is_captured(stream);
  issue_.begin();
}

void Launch::submit(const driver::Kernel& kernel, std::span<const Operand> outputs) {
  Refusal refusal(kernel);
  const CaptureRef keeper = capture_of(stream_);
  if (keeper == nullptr) {
    const Target to(stream_);
    return submit_timed(to.driver, to.stream, refusal, issue_.times());
  }
  if (kernel.in_place) capture::forbid_on(stream_, kernel.name);
  capture::keep(*keeper, stream_, refusal.pass_on(), record_, outputs);
}

void Launch::run(const InPlace& place, const driver::Kernel& kernel) {
  if (issue_.times() == nullptr) [[likely]] {
    return runtime::run(place, kernel);
  }
  Refusal refusal(kernel);
  submit_timed(*place.driver, place.stream, refusal, issue_.times());
}

void Launch::end(std::span<const Operand> inputs, std::span<const Operand> outputs) {
  issue_.set_inputs(inputs);
  issue_.set_outputs(outputs);
  issue_.end();
}

// --- where work goes ---

StreamRef current_stream_of(int device) noexcept { return {device, current_stream(device)}; }

bool is_captured(StreamRef stream) { return capture::is_underway() && capture::of(stream) != nullptr; }

bool runs_in_place(StreamRef stream) { return static_cast<bool>(in_place(stream)); }

bool is_kernel_described() noexcept { return tape::is_told(CommandKind::kKernel) || capture::is_underway(); }

InPlace in_place(StreamRef stream) { return in_place(get().device(stream.device), stream); }

InPlace in_place(const Device& device, StreamRef stream) {
  driver::Driver& driver = device.driver();
  const driver::Stream handle = device.stream(stream.id);
  if (!driver.runs_in_place(handle) || is_captured(stream)) return {};
  return {&driver, handle};
}

void run(const InPlace& place, const driver::Kernel& kernel) { place.driver->submit(place.stream, kernel); }

// --- work ---

void submit(StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record,
            std::span<const Operand> outputs) {
  Refusal refusal(kernel);
  if (!is_kernel_described()) [[likely]] {
    const Target to(stream);
    return submit_timed(to.driver, to.stream, refusal, nullptr);
  }
  if (kernel.in_place && is_captured(stream)) capture::forbid_on(stream, kernel.name);
  Launch launch;
  launch.begin(stream, kernel.name, record);
  launch.submit(refusal.pass_on(), outputs);
  launch.end(record.inputs, outputs);
}

void submit_aside(StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record) {
  // What is submitted to the default stream while nothing is pending would keep the caller. It goes to a
  // stream of its own instead, which the default stream waits for.
  Device& device = get().device(stream.device);
  if (stream.id != 0 || !runs_in_place(stream) || get().config().launch != "auto" || !device.runs_kernels()) {
    return submit(stream, kernel, record);
  }
  Refusal refusal(kernel);
  driver::Driver& driver = device.driver();
  const driver::Stream own = device.stream(0), side = device.side_stream();
  Issue issue;
  if (tape::is_told(CommandKind::kKernel)) [[unlikely]] {
    Command& command = issue.describe(CommandKind::kKernel, stream);
    command.name = kernel.name;
    command.attributes = record.attributes;
    issue.begin();
  }
  const auto put_in_order = [&](driver::Stream earlier, driver::Stream later) {
    const driver::Event event = driver.create_event({/*timing=*/false});
    driver.record_event(event, earlier);
    driver.wait_event(later, event);
    driver.destroy_event(event);
  };
  put_in_order(own, side);
  submit_timed(driver, side, refusal, issue.times());
  put_in_order(side, own);
  issue.end();
}

namespace {

// To a driver, memory of another world is some memory of the host's, which it would touch.
void check_one_world(const Device& device, const void* destination, const void* source) {
  for (const void* side : {destination, source}) {
    const Place place = locate(side);
    if (place.device != nullptr && &place.device->runtime() != &device.runtime()) {
      throw InvalidArgument(
          "a copy between devices of a dry run and others: a tensor from outside of a dry run cannot be used "
          "inside, "
          "nor one from inside afterwards");
    }
  }
}

}  // namespace

void copy(StreamRef stream, void* destination, const void* source, size_t bytes) {
  const CaptureRef keeper = capture_of(stream);
  if (bytes != 0 && capture::is_underway() && (is_pageable(destination) || is_pageable(source))) {
    capture::forbid_on(stream, "a copy of host memory that is not pinned");
  }
  if (has_other_worlds()) [[unlikely]] {
    check_one_world(Target(stream).device, destination, source);
  }
  Issue issue;
  if (tape::is_told(CommandKind::kCopy)) [[unlikely]] {
    begin_move(issue, CommandKind::kCopy, stream, destination, source, bytes, keeper != nullptr);
  }
  if (keeper != nullptr) {
    capture::keep_copy(*keeper, stream, destination, source, bytes);
  } else {
    copy_timed(Target(stream), destination, source, bytes, issue.times());
  }
  issue.end();
}

void copy_and_wait(StreamRef stream, void* destination, const void* source, size_t bytes) {
  copy(stream, destination, source, bytes);
  note_finished(stream);
}

void store_result(StreamRef stream, void* destination, const void* source, size_t bytes) {
  Issue issue;
  if (tape::is_told(CommandKind::kStoreResult)) [[unlikely]] {
    begin_move(issue, CommandKind::kStoreResult, stream, destination, source, bytes, /*is_captured=*/false);
  }
  const Target to(stream);
  to.driver.copy(to.stream, destination, source, bytes);
  issue.end();
}

void fill(StreamRef stream, void* destination, uint8_t value, size_t bytes) {
  const CaptureRef keeper = capture_of(stream);
  Issue issue;
  if (tape::is_told(CommandKind::kFill)) [[unlikely]] {
    begin_move(issue, CommandKind::kFill, stream, destination, nullptr, bytes, keeper != nullptr);
  }
  if (keeper != nullptr) {
    capture::keep_fill(*keeper, stream, destination, value, bytes);
  } else {
    fill_timed(Target(stream), destination, value, bytes, issue.times());
  }
  issue.end();
}

// --- waiting ---

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
  of.driver.synchronize_stream(of.stream);
  issue.end();
}

void drain_stream(StreamRef stream) {
  const Target of(stream);
  of.driver.synchronize_stream(of.stream, driver::OnFailure::kKeep);
  note_finished(stream);
}

void synchronize_device(int device) {
  if (capture::is_underway()) capture::forbid_on_device(device, "synchronisation with a device");
  Issue issue;
  if (tape::is_told(CommandKind::kSynchronizeDevice)) [[unlikely]] {
    begin_wait(issue, CommandKind::kSynchronizeDevice, {device, -1});
  }
  get().device(device).synchronize();
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
  if (!shared_events::synchronize(event)) driver_of(event).synchronize_event(event);
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

void untold::submit(driver::Driver& driver, driver::Stream stream, const driver::Kernel& kernel) {
  driver.submit(stream, kernel);
}
void untold::copy(driver::Driver& driver, driver::Stream stream, void* destination, const void* source,
                  size_t bytes) {
  driver.copy(stream, destination, source, bytes);
}
void untold::fill(driver::Driver& driver, driver::Stream stream, void* destination, uint8_t value,
                  size_t bytes) {
  driver.fill(stream, destination, value, bytes);
}
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
