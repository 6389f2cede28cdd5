// When a stream ran kernels and copies during the last second, in plain words of memory that another process
// may read. The stream's executing thread alone writes them: two readings of the processor's counter and
// three stores a command.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace loom::driver {

namespace activity {

// Time is kept in buckets of 2^shift ticks, 17 to 34 ms each; the last 64 of them are more than a second.
constexpr int kNumBuckets = 64;
inline int bucket_shift(double ticks_per_second) {
  constexpr double kSeconds = 0.017;
  int bits = 0;
  while (bits < 31 && static_cast<double>(uint64_t{1} << bits) < ticks_per_second * kSeconds) ++bits;
  return bits;
}

}  // namespace activity

class StreamActivity {
 public:
  // Of the program: before it gives it to a stream, in memory that is zero.
  void prepare(int bucket_shift) noexcept { shift_ = static_cast<uint64_t>(bucket_shift); }

  // Of the driver, in the thread that runs the stream's commands: around each, with the time in
  // Program::ticks().
  void begin(uint64_t now) noexcept { started_.store(now | 1, std::memory_order_relaxed); }
  void mark_copy() noexcept { is_copy_.store(1, std::memory_order_relaxed); }
  void end(uint64_t end) noexcept {
    const uint64_t start = started_.load(std::memory_order_relaxed);
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

 private:
  // A bucket holds its number, modulo 2^32, above the ticks that were spent in it.
  static void add(std::atomic<uint64_t>* buckets, uint64_t number, uint64_t ticks) noexcept {
    std::atomic<uint64_t>& bucket = buckets[number % activity::kNumBuckets];
    const uint64_t before = bucket.load(std::memory_order_relaxed), tag = number << 32;
    bucket.store((before ^ tag) >> 32 == 0 ? before + ticks : tag | ticks, std::memory_order_relaxed);
  }
  // Buckets that are no longer kept are left out.
  void spread(std::atomic<uint64_t>* buckets, uint64_t start, uint64_t end) const noexcept {
    if (end <= start) return;
    const uint64_t last = end >> shift_;
    const uint64_t oldest = last < activity::kNumBuckets ? 0 : last - (activity::kNumBuckets - 1);
    for (uint64_t number = std::max(start >> shift_, oldest); number <= last; ++number) {
      const uint64_t from = std::max(start, number << shift_), to = std::min(end, (number + 1) << shift_);
      add(buckets, number, to - from);
    }
  }

  std::atomic<uint64_t> started_;  // of the command that runs now; 0 when none does
  std::atomic<uint64_t> is_copy_;
  uint64_t shift_;
  uint64_t unused_[5];
  std::atomic<uint64_t> kernels_[activity::kNumBuckets], copies_[activity::kNumBuckets];
};
static_assert(sizeof(StreamActivity) == 64 + 2 * 8 * activity::kNumBuckets);

}  // namespace loom::driver
