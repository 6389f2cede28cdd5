// The allocator's lock: held for tens of nanoseconds, taken twice for every tensor.
#pragma once

#include <atomic>

namespace loom::runtime {

// A mutex that costs one atomic exchange to take and one to release while nobody waits. A waiter spins for
// about as long as an allocation takes, then sleeps.
class Lock {
 public:
  void lock() noexcept {
    int expected = kFree;
    if (state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) [[likely]] {
      return;
    }
    for (int turn = 0; turn < kSpins; ++turn) {
      expected = kFree;
      if (state_.load(std::memory_order_relaxed) == kFree &&
          state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) {
        return;
      }
      pause();
    }
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) state_.wait(kWaitedFor);
  }

  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kWaitedFor) [[unlikely]] {
      state_.notify_one();
    }
  }

 private:
  static constexpr int kFree = 0, kTaken = 1, kWaitedFor = 2;
  static constexpr int kSpins = 100;

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<int> state_{kFree};
};

}  // namespace loom::runtime
