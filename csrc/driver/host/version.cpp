#include "driver/host/version.h"

#include "util/clock.h"
#include "util/spin.h"

namespace loom::driver {

void Version::reach(Failures failures) noexcept {
  failures_ = std::move(failures);
  time_ns_ = clock::now_ns();
  reached_.store(1, std::memory_order_release);
  reached_.notify_all();
}

void Version::wait() const noexcept {
  if (!spin_until([&] { return finished(); })) reached_.wait(0, std::memory_order_acquire);
}

}  // namespace loom::driver
