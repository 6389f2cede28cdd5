// Waiting a little before sleeping: what another core does in a microsecond is not worth a system call.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

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

// For sections of some ten instructions: a thread that finds it taken looks again before it sleeps.
class SpinMutex {
 public:
  void lock() noexcept {
    constexpr int kLooks = 200;
    int state = kFree;
    if (state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) [[likely]] {
      return;
    }
    for (int i = 0; i < kLooks; ++i) {
      state = kFree;
      if (state_.load(std::memory_order_relaxed) == kFree &&
          state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) {
        return;
      }
      pause_core();
    }
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) state_.wait(kContended);
  }
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) [[unlikely]] {
      state_.notify_one();
    }
  }

 private:
  enum : int { kFree, kTaken, kContended };
  std::atomic<int> state_{kFree};
};

}  // namespace loom::driver
