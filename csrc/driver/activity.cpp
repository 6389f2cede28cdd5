#include "driver/activity.h"

#include <algorithm>

namespace loom::driver {

int activity::bucket_shift(double ticks_per_second) {
  static const int shift = [ticks_per_second] {
    constexpr double kSeconds = 0.017;
    const double wanted = ticks_per_second * kSeconds;
    int bits = 0;
    while (bits < 31 && static_cast<double>(uint64_t{1} << bits) < wanted) ++bits;
    StreamActivity::set_shift(bits);
    return bits;
  }();
  return shift;
}

// Buckets that are no longer kept are left out.
void StreamActivity::spread(std::atomic<uint64_t>* buckets, uint64_t start, uint64_t end) noexcept {
  if (end <= start) return;
  const uint64_t last = end >> shift_;
  for (uint64_t number =
           std::max(start >> shift_, last - std::min<uint64_t>(last, activity::kNumBuckets - 1));
       number <= last; ++number) {
    const uint64_t from = std::max(start, number << shift_), to = std::min(end, (number + 1) << shift_);
    add(buckets, number, to - from);
  }
}

}  // namespace loom::driver
