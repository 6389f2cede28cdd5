#pragma once

#include "cub/device/command.h"
#include "cub/radix.h"

namespace cub {
namespace loom_detail {

// Sorts keys, and values with them, from one place of arrays to another; `values` may be null.
template <typename K, typename V>
static inline void radix_sort(const K* in, K* out, const V* values, V* values_out, long long first,
                              long long last, BitRange range, bool is_descending) {
  struct Item {
    decltype(ordered_bits(K())) bits;
    K key;
    long long from;
  };
  if (first >= last) return;
  std::vector<Item> items;
  items.reserve(static_cast<size_t>(last - first));
  for (long long i = first; i < last; ++i) items.push_back({range(in[i]), in[i], i});
  if (is_descending) {
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return b.bits < a.bits; });
  } else {
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.bits < b.bits; });
  }
  if (values != nullptr) {
    struct Box {
      V value;
    };
    std::vector<Box> sorted;
    sorted.reserve(items.size());
    for (const Item& item : items) sorted.push_back({values[item.from]});
    for (size_t i = 0; i < sorted.size(); ++i)
      values_out[first + static_cast<long long>(i)] = sorted[i].value;
  }
  for (size_t i = 0; i < items.size(); ++i) out[first + static_cast<long long>(i)] = items[i].key;
}

// Without segments there is one.
struct Whole {
  long long at;
  long long operator[](long long) const { return at; }
};
template <typename K, typename V, typename B, typename E>
static inline cudaError_t sort_segments(const char* name, void* temporary, size_t& bytes, const K* in, K* out,
                                        const V* values, V* values_out, long long segments, B begins, E ends,
                                        BitRange range, bool is_descending, cudaStream_t stream) {
  return command(
      name, temporary, bytes, stream,
      [](const K* in, K* out, const V* values, V* values_out, long long segments, auto begins, auto ends,
         BitRange range, bool is_descending) {
        for (long long s = 0; s < segments; ++s) {
          radix_sort(in, out, values, values_out, static_cast<long long>(begins[s]),
                     static_cast<long long>(ends[s]), range, is_descending);
        }
      },
      in, out, values, values_out, segments, begins, ends, range, is_descending);
}
template <typename T>
static inline void flip(void* temporary, DoubleBuffer<T>& buffer) {
  if (temporary != nullptr) buffer.selector ^= 1;
}
static constexpr NullType* kNone = nullptr;

}  // namespace loom_detail

// Stable. A range of bits may be given: others are not compared.
struct DeviceRadixSort {
#define LOOM_CUB_SORT(keys_name, pairs_name, is_descending)                                                 \
  template <typename K, std::integral N>                                                                    \
  static cudaError_t keys_name(void* temporary, size_t& bytes, const K* in, K* out, N n, int begin_bit = 0, \
                               int end_bit = 8 * sizeof(K), cudaStream_t stream = nullptr, bool = false) {  \
    return sort(temporary, bytes, in, out, loom_detail::kNone, loom_detail::kNone, n, {begin_bit, end_bit}, \
                is_descending, stream);                                                                     \
  }                                                                                                         \
  template <typename K, std::integral N>                                                                    \
  static cudaError_t keys_name(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, N n,                  \
                               int begin_bit = 0, int end_bit = 8 * sizeof(K),                              \
                               cudaStream_t stream = nullptr, bool = false) {                               \
    const cudaError_t error = keys_name(temporary, bytes, static_cast<const K*>(keys.Current()),            \
                                        keys.Alternate(), n, begin_bit, end_bit, stream);                   \
    loom_detail::flip(temporary, keys);                                                                     \
    return error;                                                                                           \
  }                                                                                                         \
  template <typename K, typename V, std::integral N>                                                        \
  static cudaError_t pairs_name(void* temporary, size_t& bytes, const K* in, K* out, const V* values,       \
                                V* values_out, N n, int begin_bit = 0, int end_bit = 8 * sizeof(K),         \
                                cudaStream_t stream = nullptr, bool = false) {                              \
    return sort(temporary, bytes, in, out, values, values_out, n, {begin_bit, end_bit}, is_descending,      \
                stream);                                                                                    \
  }                                                                                                         \
  template <typename K, typename V, std::integral N>                                                        \
  static cudaError_t pairs_name(void* temporary, size_t& bytes, DoubleBuffer<K>& keys,                      \
                                DoubleBuffer<V>& values, N n, int begin_bit = 0,                            \
                                int end_bit = 8 * sizeof(K), cudaStream_t stream = nullptr, bool = false) { \
    const cudaError_t error = pairs_name(temporary, bytes, static_cast<const K*>(keys.Current()),           \
                                         keys.Alternate(), static_cast<const V*>(values.Current()),         \
                                         values.Alternate(), n, begin_bit, end_bit, stream);                \
    loom_detail::flip(temporary, keys);                                                                     \
    loom_detail::flip(temporary, values);                                                                   \
    return error;                                                                                           \
  }
  LOOM_CUB_SORT(SortKeys, SortPairs, false)
  LOOM_CUB_SORT(SortKeysDescending, SortPairsDescending, true)
#undef LOOM_CUB_SORT

 private:
  template <typename K, typename V, typename N>
  static cudaError_t sort(void* temporary, size_t& bytes, const K* in, K* out, const V* values, V* values_out,
                          N n, loom_detail::BitRange range, bool is_descending, cudaStream_t stream) {
    return loom_detail::sort_segments("cub::DeviceRadixSort", temporary, bytes, in, out, values, values_out,
                                      1, loom_detail::Whole{0}, loom_detail::Whole{static_cast<long long>(n)},
                                      range, is_descending, stream);
  }
};

}  // namespace cub
