#include "driver/host/version.h"

#include "driver/host/host_stream.h"
#include "util/clock.h"
#include "util/spin.h"
#include "util/waiting.h"

namespace loom::driver {

void Version::reach(Failures failures) noexcept {
  failures_ = std::move(failures);
  time_ns_ = clock::now_ns();
  if (state_.exchange(kReached, std::memory_order_acq_rel) == kAwaited) wake_all(state_);
}

// Once, so that callers look again.
void Version::sleep(std::chrono::nanoseconds longest) const noexcept {
  int32_t state = kPending;
  state_.compare_exchange_strong(state, kAwaited, std::memory_order_acq_rel);
  sleep_on(state_, kAwaited, longest);
}

void Version::wait() const noexcept {
  constexpr std::chrono::hours kForLong{1};
  if (spin_until([&] { return finished(); })) return;
  while (!finished()) sleep(kForLong);
}

void Version::await() const {
  if (spin_until([&] { return finished(); })) return;
  for (;;) {
    sleep(kWaitSlice);
    if (finished()) return;
    if (!HostStream::in_kernel()) check_wait();
  }
}

}  // namespace loom::driver
