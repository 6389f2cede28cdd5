#pragma once

#include <algorithm>

#include "cub/device/command.h"

namespace cub {

// By any operator; all forms are stable.
struct DeviceMergeSort {
  template <typename KI, typename VI, typename K, typename V, std::integral N, typename Less>
  static cudaError_t SortPairsCopy(void* temporary, size_t& bytes, KI keys_in, VI in, K keys, V values, N n,
                                   Less is_less, cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceMergeSort", temporary, bytes, stream,
        [](auto keys_in, auto in, auto keys, auto values, N n, Less is_less) {
          struct Item {
            loom_detail::Value<KI> key;
            loom_detail::Value<VI> value;
          };
          std::vector<Item> items;
          for (N i = 0; i < n; ++i) {
            items.push_back({static_cast<loom_detail::Value<KI>>(keys_in[i]),
                             static_cast<loom_detail::Value<VI>>(in[i])});
          }
          std::stable_sort(items.begin(), items.end(),
                           [&](const Item& a, const Item& b) { return is_less(a.key, b.key); });
          for (N i = 0; i < n; ++i) {
            keys[i] = items[static_cast<size_t>(i)].key;
            values[i] = items[static_cast<size_t>(i)].value;
          }
        },
        keys_in, in, keys, values, n, is_less);
  }
  template <typename KI, typename K, std::integral N, typename Less>
  static cudaError_t SortKeysCopy(void* temporary, size_t& bytes, KI keys_in, K keys, N n, Less is_less,
                                  cudaStream_t stream = nullptr, bool = false) {
    return SortPairsCopy(temporary, bytes, keys_in, keys_in, keys, ::thrust::discard_iterator<>(), n, is_less,
                         stream);
  }
  template <typename K, typename V, std::integral N, typename Less>
  static cudaError_t SortPairs(void* temporary, size_t& bytes, K keys, V values, N n, Less is_less,
                               cudaStream_t stream = nullptr, bool = false) {
    return SortPairsCopy(temporary, bytes, keys, values, keys, values, n, is_less, stream);
  }
  template <typename K, std::integral N, typename Less>
  static cudaError_t SortKeys(void* temporary, size_t& bytes, K keys, N n, Less is_less,
                              cudaStream_t stream = nullptr, bool = false) {
    return SortKeysCopy(temporary, bytes, keys, keys, n, is_less, stream);
  }
  template <typename K, typename V, std::integral N, typename Less>
  static cudaError_t StableSortPairs(void* temporary, size_t& bytes, K keys, V values, N n, Less is_less,
                                     cudaStream_t stream = nullptr, bool = false) {
    return SortPairs(temporary, bytes, keys, values, n, is_less, stream);
  }
  template <typename K, std::integral N, typename Less>
  static cudaError_t StableSortKeys(void* temporary, size_t& bytes, K keys, N n, Less is_less,
                                    cudaStream_t stream = nullptr, bool = false) {
    return SortKeys(temporary, bytes, keys, n, is_less, stream);
  }
  template <typename KI, typename K, std::integral N, typename Less>
  static cudaError_t StableSortKeysCopy(void* temporary, size_t& bytes, KI keys_in, K keys, N n, Less is_less,
                                        cudaStream_t stream = nullptr, bool = false) {
    return SortKeysCopy(temporary, bytes, keys_in, keys, n, is_less, stream);
  }
};

}  // namespace cub
