#pragma once

#include "cub/device/device_radix_sort.cuh"

namespace cub {
namespace loom_detail {

// What may stand behind the segments: a range of bits in radix sorts, and the stream.
struct SortOptions {
  BitRange range{0, 128};
  cudaStream_t stream = nullptr;
  SortOptions() = default;
  SortOptions(cudaStream_t stream, bool = false) : stream(stream) {}
  SortOptions(int begin_bit, int end_bit = 128, cudaStream_t stream = nullptr, bool = false)
      : range{begin_bit, end_bit}, stream(stream) {}
};

template <typename K, typename N, typename S, typename B, typename E, typename... Rest>
static inline cudaError_t sort_keys(const char* name, bool is_descending, void* temporary, size_t& bytes,
                                    const K* in, K* out, N, S segments, B begins, E ends, Rest... rest) {
  const SortOptions options(rest...);
  return sort_segments(name, temporary, bytes, in, out, kNone, kNone, static_cast<long long>(segments),
                       begins, ends, options.range, is_descending, options.stream);
}
template <typename K, typename V, typename N, typename S, typename B, typename E, typename... Rest>
static inline cudaError_t sort_pairs(const char* name, bool is_descending, void* temporary, size_t& bytes,
                                     const K* in, K* out, const V* values, V* values_out, N, S segments,
                                     B begins, E ends, Rest... rest) {
  const SortOptions options(rest...);
  return sort_segments(name, temporary, bytes, in, out, values, values_out, static_cast<long long>(segments),
                       begins, ends, options.range, is_descending, options.stream);
}
template <typename K, typename... Rest>
static inline cudaError_t sort_keys(const char* name, bool is_descending, void* temporary, size_t& bytes,
                                    DoubleBuffer<K>& keys, Rest... rest) {
  const K* const in = keys.Current();
  const cudaError_t error = sort_keys(name, is_descending, temporary, bytes, in, keys.Alternate(), rest...);
  flip(temporary, keys);
  return error;
}
template <typename K, typename V, typename... Rest>
static inline cudaError_t sort_pairs(const char* name, bool is_descending, void* temporary, size_t& bytes,
                                     DoubleBuffer<K>& keys, DoubleBuffer<V>& values, Rest... rest) {
  const K* const in = keys.Current();
  const V* const values_in = values.Current();
  const cudaError_t error = sort_pairs(name, is_descending, temporary, bytes, in, keys.Alternate(), values_in,
                                       values.Alternate(), rest...);
  flip(temporary, keys);
  flip(temporary, values);
  return error;
}

}  // namespace loom_detail

// Segments are from one offset to another; what is in none stays as it is. The arguments are those of
// sort_keys() and sort_pairs().
#define LOOM_CUB_SORT(name, function, is_descending)                                    \
  template <typename... A>                                                              \
  static cudaError_t name(void* temporary, size_t& bytes, A&&... arguments) {           \
    return loom_detail::function(kName, is_descending, temporary, bytes, arguments...); \
  }
struct DeviceSegmentedRadixSort {
  static constexpr const char* kName = "cub::DeviceSegmentedRadixSort";
  LOOM_CUB_SORT(SortKeys, sort_keys, false)
  LOOM_CUB_SORT(SortKeysDescending, sort_keys, true)
  LOOM_CUB_SORT(SortPairs, sort_pairs, false)
  LOOM_CUB_SORT(SortPairsDescending, sort_pairs, true)
};
struct DeviceSegmentedSort {
  static constexpr const char* kName = "cub::DeviceSegmentedSort";
  LOOM_CUB_SORT(SortKeys, sort_keys, false)
  LOOM_CUB_SORT(SortKeysDescending, sort_keys, true)
  LOOM_CUB_SORT(SortPairs, sort_pairs, false)
  LOOM_CUB_SORT(SortPairsDescending, sort_pairs, true)
  LOOM_CUB_SORT(StableSortKeys, sort_keys, false)
  LOOM_CUB_SORT(StableSortKeysDescending, sort_keys, true)
  LOOM_CUB_SORT(StableSortPairs, sort_pairs, false)
  LOOM_CUB_SORT(StableSortPairsDescending, sort_pairs, true)
};
#undef LOOM_CUB_SORT

}  // namespace cub
