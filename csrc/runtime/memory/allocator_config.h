// Sizes: what a request is rounded to, and what is taken from the device for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace loom::runtime {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMinBlockBytes = 512;        // every size is rounded up to this
constexpr size_t kSmallBytes = kMiB;          // largest allocation of the small pool
constexpr size_t kSmallSegment = 2 * kMiB;    // segments of the small pool
constexpr size_t kMinLargeAlloc = 10 * kMiB;  // from here on a segment is made to measure
constexpr size_t kRoundLarge = 2 * kMiB;
constexpr size_t kMaxBytes = size_t{1} << 62;  // beyond this, rounding up could wrap around

inline size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

// What PYTORCH_ALLOC_CONF says about device memory. The torch glue fills it.
struct AllocatorConfig {
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  size_t max_split_bytes = kUnlimited;  // larger blocks are not split, and serve only such requests
  size_t max_non_split_rounding_bytes = 20 * kMiB;    // how much larger such a block may be than the request
  size_t large_segment_bytes = 20 * kMiB;             // segments for requests between 1 and 10 MiB
  std::array<size_t, 16> roundup_power2_divisions{};  // for sizes from 1 MiB, 2 MiB, … 32 GiB on; 0: none
  double garbage_collection_threshold = 0.0;          // share of the memory limit; 0: none
  bool expandable_segments = false;

  // Bytes of the block for a request of `bytes` (1 … kMaxBytes).
  size_t block_bytes(size_t bytes) const {
    if (!rounds_to_power2_) [[likely]] {
      return round_up(bytes, kMinBlockBytes);
    }
    return block_bytes_by_power2(bytes);
  }
  // Bytes of the segment that is taken for a block.
  size_t segment_bytes(size_t block_bytes) const {
    if (block_bytes <= kSmallBytes) return kSmallSegment;
    if (block_bytes < kMinLargeAlloc) return large_segment_bytes;
    return round_up(block_bytes, kRoundLarge);
  }
  // To be called after roundup_power2_divisions was set.
  void update();

 private:
  size_t block_bytes_by_power2(size_t bytes) const;

  bool rounds_to_power2_ = false;
};

// "512.00 MiB", with PyTorch's units and digits.
std::string format_bytes(int64_t bytes);

}  // namespace loom::runtime
