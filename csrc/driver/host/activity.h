// When a stream ran kernels and copies during the last second, in plain words of memory that another process
// may read. The stream's executing thread alone writes them: two readings of the processor's counter and
// three stores a command.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace loom::driver {

struct StreamState;

namespace activity {

// The processor's own counter: a clock is read in three times as long. The same in all threads and processes.
inline uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// How many ticks a second has: measured since the first call, which takes some 200 microseconds.
double ticks_per_second();

// Time is kept in buckets of 2^shift ticks, 17 to 34 ms each; the last 64 of them are more than a second.
constexpr int kNumBuckets = 64;
int bucket_shift();

}  // namespace activity

class StreamActivity {
 public:
  // Of the thread that runs the stream's commands: around each.
  void begin() noexcept { started_.store(activity::ticks() | 1, std::memory_order_relaxed); }
  void mark_copy() noexcept { is_copy_.store(1, std::memory_order_relaxed); }
  void end() noexcept {
    const uint64_t end = activity::ticks(), start = started_.load(std::memory_order_relaxed);
    const bool is_copy = is_copy_.load(std::memory_order_relaxed) != 0;
    started_.store(0, std::memory_order_relaxed);
    if (is_copy) is_copy_.store(0, std::memory_order_relaxed);
    std::atomic<uint64_t>* const buckets = is_copy ? copies_ : kernels_;
    if (start >> shift_ == end >> shift_) [[likely]] {
      add(buckets, end >> shift_, end > start ? end - start : 0);
    } else {
      spread(buckets, start, end);
    }
  }

  static void set_shift(int shift) noexcept { shift_ = static_cast<unsigned>(shift); }

 private:
  // A bucket holds its number, modulo 2^32, above the ticks that were spent in it.
  static void add(std::atomic<uint64_t>* buckets, uint64_t number, uint64_t ticks) noexcept {
    std::atomic<uint64_t>& bucket = buckets[number % activity::kNumBuckets];
    const uint64_t before = bucket.load(std::memory_order_relaxed), tag = number << 32;
    bucket.store((before ^ tag) >> 32 == 0 ? before + ticks : tag | ticks, std::memory_order_relaxed);
  }
  static void spread(std::atomic<uint64_t>* buckets, uint64_t start, uint64_t end) noexcept;

  inline static unsigned shift_ = 26;
  std::atomic<uint64_t> started_;  // of the command that runs now; 0 when none does
  std::atomic<uint64_t> is_copy_;
  uint64_t unused_[6];
  std::atomic<uint64_t> kernels_[activity::kNumBuckets], copies_[activity::kNumBuckets];
};
static_assert(sizeof(StreamActivity) == 64 + 2 * 8 * activity::kNumBuckets);

// From now on the stream tells `activity` what it runs. Before anything is submitted to it; `activity`
// outlives it.
void measure(StreamState* stream, StreamActivity* activity);

}  // namespace loom::driver
