// The figures of one device's allocator, with the meaning that they have in PyTorch's DeviceStats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loom::runtime {

// One counted quantity. `allocated` and `freed` only grow, until they are reset.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void increase(int64_t amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

// Index into a StatArray, in PyTorch's order.
enum class StatType { kAggregate = 0, kSmallPool = 1, kLargePool = 2 };
using StatArray = std::array<Stat, 3>;

struct AllocatorStats {
  StatArray allocation, segment, active, inactive_split;                                           // counts
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;  // bytes
  Stat cached_bytes;                 // reserved − active, whole free segments included
  Stat oversize_allocations;         // live blocks of at least max_split_size
  Stat oversize_segments;            // segments of at least max_split_size
  int64_t num_alloc_retries = 0;     // the device had no memory, and the cache was flushed
  int64_t num_ooms = 0;              // … and there was none after that either
  int64_t num_sync_all_streams = 0;  // waits for all recorded events
  int64_t num_device_alloc = 0, num_device_free = 0;
  int64_t max_split_size = -1;  // bytes; −1: no limit

  template <typename F>
  void each_array(F&& visit) {
    for (StatArray* array : {&allocation, &segment, &active, &inactive_split, &allocated_bytes,
                             &reserved_bytes, &active_bytes, &inactive_split_bytes, &requested_bytes}) {
      visit(*array);
    }
  }
  void reset_peaks();
  void reset_accumulated();
};

// Names and values in the order in which they are shown: the short names (allocated, reserved, active,
// cached, in bytes), then CUDA's.
using NamedStats = std::vector<std::pair<std::string, int64_t>>;
NamedStats named_stats(const AllocatorStats& stats);

inline void AllocatorStats::reset_peaks() {
  const auto reset = [](Stat& stat) { stat.peak = stat.current; };
  each_array([&](StatArray& array) {
    for (Stat& stat : array) reset(stat);
  });
  for (Stat* stat : {&cached_bytes, &oversize_allocations, &oversize_segments}) reset(*stat);
}

inline void AllocatorStats::reset_accumulated() {
  const auto reset = [](Stat& stat) { stat.allocated = stat.freed = 0; };
  each_array([&](StatArray& array) {
    for (Stat& stat : array) reset(stat);
  });
  for (Stat* stat : {&cached_bytes, &oversize_allocations, &oversize_segments}) reset(*stat);
  num_alloc_retries = num_ooms = num_sync_all_streams = num_device_alloc = num_device_free = 0;
}

}  // namespace loom::runtime
