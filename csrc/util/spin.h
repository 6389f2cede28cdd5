// Waiting a little before sleeping: what another core does in a microsecond is not worth a system call.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace loom::driver {

inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `done()` became true within some 30 microseconds. Yields the core now and then, since there may be
// no second core.
template <typename Done>
bool spin_until(Done&& done) {
  constexpr auto kPatience = std::chrono::microseconds(30);
  constexpr int kPausesPerLook = 16, kLooksPerYield = 2;
  if (done()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (int looks = 1;; ++looks) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      pause_core();
      if (done()) return true;
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (looks % kLooksPerYield == 0) sched_yield();
  }
}

// For sections of some ten instructions. Its end is a plain store: a thread that finds it taken looks again,
// gives way to others, and at last sleeps for moments, so that the end has none to wake.
class SpinMutex {
 public:
  void lock() noexcept {
    if (!is_taken_.exchange(true, std::memory_order_acquire)) [[likely]] {
      return;
    }
    constexpr int kPauses = 200, kYields = 50;
    constexpr auto kMoment = std::chrono::microseconds(50);
    for (int looks = 0;; ++looks) {
      if (!is_taken_.load(std::memory_order_relaxed) && !is_taken_.exchange(true, std::memory_order_acquire))
        return;
      if (looks < kPauses) {
        pause_core();
      } else if (looks < kPauses + kYields) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kMoment);
      }
    }
  }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace loom::driver
