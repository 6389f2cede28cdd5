#include "runtime/commands.h"

#include <utility>

#include "runtime/capture.h"
#include "runtime/peer_copy.h"
#include "runtime/simulated_clock.h"
#include "runtime/targets.h"
#include "runtime/timing.h"
#include "runtime/worlds.h"

namespace loom::runtime {

namespace {

void begin_move(Issue& issue, CommandKind kind, StreamRef stream, void* destination, const void* source,
                size_t bytes, bool is_captured) {
  Command& command = issue.describe(kind, stream);
  command.address = destination;
  command.source = source;
  command.bytes = bytes;
  command.is_captured = is_captured;
  issue.begin();
}

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

// Submits a kernel; its times go to `times` unless that is null.
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

}  // namespace

// --- what is reported ---

void Issue::end() {
  if (state_ != State::kBegun) return;
  state_ = State::kEnded;
  if (times_ != nullptr) {
    times_->host_returned_ns = clock::host_ns();
    times_->returned_ns = clock::now_ns();
  }
  if (!tape::is_end_told(command_.kind)) return;
  command_.times = nullptr;
  tape::end(command_, told_);
  if (times_ != nullptr && simulated::is_on()) {
    simulated::note(*times_);
    times_->returned_ns = clock::now_ns();
  }
}

void Issue::end_failed() noexcept {
  command_.has_failed = true;
  try {
    end();
  } catch (...) {  // what made the command fail is on its way
  }
}

void Launch::submit(const driver::Kernel& kernel, std::span<const Operand> outputs) {
  Refusal refusal(kernel);
  const StreamRef where = stream();
  const CaptureRef keeper = capture_of(where);
  if (keeper == nullptr) {
    const Target to(where);
    if (kernel.in_place) wait_for_turn(to);
    return submit_timed(to.driver, to.stream, refusal, issue_.times());
  }
  if (kernel.in_place) capture::forbid_on(where, kernel.name);
  const Command& command = issue_.command();
  capture::keep(*keeper, where, refusal.pass_on(), {command.op, command.inputs, command.attributes}, outputs);
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
    if (kernel.in_place) wait_for_turn(to);
    return submit_timed(to.driver, to.stream, refusal, nullptr);
  }
  if (kernel.in_place && is_captured(stream)) capture::forbid_on(stream, kernel.name);
  Launch launch;
  launch.begin(stream, kernel.name, record);
  launch.submit(refusal.pass_on(), outputs);
  launch.end(record.inputs, outputs);
}

void submit_and_wait(StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record,
                     std::span<const Operand> outputs) {
  Refusal refusal(kernel);
  Launch launch;
  launch.begin(stream, kernel.name, record);
  launch.submit(refusal.pass_on());
  wait_for_stream(stream);
  launch.end(record.inputs, outputs);
}

void submit_aside(StreamRef stream, const driver::Kernel& kernel) {
  // What is submitted to the default stream while nothing is pending would keep the caller. It goes to a
  // stream of its own instead, which the default stream waits for.
  Device& device = get().device(stream.device);
  if (stream.id != 0 || !runs_in_place(stream) || get().config().launch != "auto" || !device.runs_kernels()) {
    return submit(stream, kernel);
  }
  Refusal refusal(kernel);
  driver::Driver& driver = device.driver();
  const driver::Stream own = device.stream(0), side = device.side_stream();
  Issue issue;
  if (tape::is_told(CommandKind::kKernel)) [[unlikely]] {
    issue.describe(CommandKind::kKernel, stream, kernel.name);
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
    const Target to(stream);
    const bool runs_here = bytes == 0 || to.driver.runs_in_place(to.stream);
    if (!runs_here && (is_pageable(destination) || is_pageable(source))) wait_for_turn(to);
    copy_timed(to, destination, source, bytes, issue.times());
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

}  // namespace loom::runtime
