#include "runtime/timing.h"

#include <chrono>
#include <type_traits>
#include <utility>

namespace loom::runtime::timing {

int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void note_not_run(CommandTimes& times) noexcept {
  times.began_ns = times.issued_ns;
  times.ended_ns = times.issued_ns;
}

namespace {

// A kernel and what its times go to; released with it.
struct TimedKernel {
  driver::Kernel kernel;
  Shared times;
  ~TimedKernel() {
    if (kernel.release != nullptr) kernel.release(kernel.context);
  }
};

// Runs `work`, a call of the driver for this very stream, as a kernel: what a kernel submits to its own
// stream is part of it.
template <typename F>
void submit_as_kernel(driver::Driver& driver, driver::Stream stream, const char* name, bool in_place, F work,
                      const Shared& times) {
  struct Timed {
    F work;
    Shared times;
  };
  const auto run = [](void* context, driver::Stream) {
    auto* timed = static_cast<Timed*>(context);
    const Running running(timed->times.get());
    timed->work();
  };
  const auto release = [](void* context) { delete static_cast<Timed*>(context); };
  driver.submit(stream, {name, run, release, new Timed{std::move(work), times}, in_place});
}

}  // namespace

void submit(driver::Driver& driver, driver::Stream stream, const driver::Kernel& kernel,
            const Shared& times) {
  if (!driver.info().executes_kernels) {
    note_not_run(*times);
    driver.submit(stream, kernel);
    return;
  }
  const auto run = [](void* context, driver::Stream stream) {
    const auto* timed = static_cast<TimedKernel*>(context);
    const Running running(timed->times.get());
    timed->kernel.run(timed->kernel.context, stream);
  };
  const auto release = [](void* context) { delete static_cast<TimedKernel*>(context); };
  driver.submit(stream, {kernel.name, run, release, new TimedKernel{kernel, times}, kernel.in_place});
}

void copy(driver::Driver& driver, driver::Stream stream, void* destination, const void* source, size_t bytes,
          const Shared& times) {
  if (bytes == 0 || destination == nullptr || source == nullptr || !driver.info().executes_kernels) {
    note_not_run(*times);
    driver.copy(stream, destination, source, bytes);
    return;
  }
  const auto is_pageable = [&](const void* address) {
    return driver.locate(address).kind == driver::AddressKind::kUnknown;
  };
  submit_as_kernel(
      driver, stream, "copy", is_pageable(destination) || is_pageable(source),
      [=, &driver] { driver.copy(stream, destination, source, bytes); }, times);
}

void fill(driver::Driver& driver, driver::Stream stream, void* destination, uint8_t value, size_t bytes,
          const Shared& times) {
  if (bytes == 0 || destination == nullptr || !driver.info().executes_kernels) {
    note_not_run(*times);
    driver.fill(stream, destination, value, bytes);
    return;
  }
  submit_as_kernel(
      driver, stream, "fill", /*in_place=*/false,
      [=, &driver] { driver.fill(stream, destination, value, bytes); }, times);
}

}  // namespace loom::runtime::timing
