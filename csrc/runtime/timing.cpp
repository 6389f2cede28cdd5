#include "runtime/timing.h"

#include "runtime/simulated_clock.h"

namespace loom::runtime::timing {

namespace {

// A kernel and what its times go to; released with it.
struct TimedKernel {
  driver::Kernel kernel;
  Shared times;
  ~TimedKernel() {
    if (kernel.release != nullptr) kernel.release(kernel.context);
  }
};

}  // namespace

driver::Kernel timed(const driver::Kernel& kernel, const Shared& times) {
  if (simulated::is_on()) return kernel;  // the clock says at the end when it runs
  const auto run = [](void* context, driver::Stream stream) {
    const auto* timed = static_cast<TimedKernel*>(context);
    const Running running(timed->times.get());
    timed->kernel.run(timed->kernel.context, stream);
  };
  const auto release = [](void* context) { delete static_cast<TimedKernel*>(context); };
  return {kernel.name, run, release, new TimedKernel{kernel, times}, kernel.in_place};
}

void note_not_run(CommandTimes& times) noexcept {
  times.began_ns = times.issued_ns;
  times.ended_ns = times.issued_ns;
}

}  // namespace loom::runtime::timing
