// Sorts of a block: one thread sorts the places of all items. Each sort is stable.
#pragma once

#include "cub/radix.h"

namespace cub {
namespace loom_detail {

template <typename K, typename V, int kThreads, int Items>
class BlockSort {
  static constexpr int kItems = kThreads * Items;

 public:
  struct alignas(16) Storage {
    Uninitialized<K> keys[kItems];
    Uninitialized<V> values[kItems];
    int order[kItems];
  };

  // Of the first `num_valid` items. `values` may be null; results are striped, or in a row each.
  template <typename Before>
  static void sort(Storage& storage, K (&keys)[Items], V* values, Before before, int num_valid,
                   bool is_striped) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    for (int i = 0; i < Items; ++i) {
      storage.keys[rank * Items + i].Alias() = keys[i];
      if (values != nullptr) storage.values[rank * Items + i].Alias() = values[i];
      storage.order[rank * Items + i] = rank * Items + i;
    }
    __syncthreads();
    if (rank == 0) {
      const loom_cuda::Unchecked own_memory;
      std::stable_sort(storage.order, storage.order + num_valid, [&](int a, int b) {
        return before(storage.keys[a].Alias(), storage.keys[b].Alias());
      });
    }
    __syncthreads();
    for (int i = 0; i < Items; ++i) {
      const int from = storage.order[is_striped ? rank + i * kThreads : rank * Items + i];
      keys[i] = storage.keys[from].Alias();
      if (values != nullptr) values[i] = storage.values[from].Alias();
    }
    __syncthreads();
  }
};

}  // namespace loom_detail

template <typename K, int X, int Items, typename V = NullType, int = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int Y = 1, int Z = 1, int = 0>
class BlockRadixSort {
  static constexpr int kThreads = X * Y * Z, kBits = 8 * sizeof(K);
  using Sorter = loom_detail::BlockSort<K, V, kThreads, Items>;

 public:
  using TempStorage = typename Sorter::Storage;
  BlockRadixSort() : storage_(own()) {}
  explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}

#define LOOM_CUB_SORT(name, is_descending, is_striped)                                            \
  void name(K(&keys)[Items], int begin_bit = 0, int end_bit = kBits) {                            \
    const loom_detail::RadixBefore before{{begin_bit, end_bit}, is_descending};                   \
    Sorter::sort(storage_, keys, static_cast<V*>(nullptr), before, kThreads * Items, is_striped); \
  }                                                                                               \
  void name(K(&keys)[Items], V(&values)[Items], int begin_bit = 0, int end_bit = kBits) {         \
    const loom_detail::RadixBefore before{{begin_bit, end_bit}, is_descending};                   \
    Sorter::sort(storage_, keys, values, before, kThreads * Items, is_striped);                   \
  }
  LOOM_CUB_SORT(Sort, false, false)
  LOOM_CUB_SORT(SortDescending, true, false)
  LOOM_CUB_SORT(SortBlockedToStriped, false, true)
  LOOM_CUB_SORT(SortDescendingBlockedToStriped, true, true)
#undef LOOM_CUB_SORT

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  TempStorage& storage_;
};

template <typename K, int X, int Items, typename V = NullType, int Y = 1, int Z = 1>
class BlockMergeSort {
  static constexpr int kThreads = X * Y * Z;
  using Sorter = loom_detail::BlockSort<K, V, kThreads, Items>;

 public:
  using TempStorage = typename Sorter::Storage;
  BlockMergeSort() : storage_(own()) {}
  explicit BlockMergeSort(TempStorage& storage) : storage_(storage) {}

  template <typename Less>
  void StableSort(K (&keys)[Items], Less is_less) {
    Sorter::sort(storage_, keys, static_cast<V*>(nullptr), is_less, kThreads * Items, false);
  }
  template <typename Less>
  void StableSort(K (&keys)[Items], V (&values)[Items], Less is_less) {
    Sorter::sort(storage_, keys, values, is_less, kThreads * Items, false);
  }
  // Behind `num_valid` items stands `other`.
  template <typename Less>
  void StableSort(K (&keys)[Items], Less is_less, int num_valid, K other) {
    Sorter::sort(storage_, keys, static_cast<V*>(nullptr), is_less, num_valid, false);
    pad(keys, num_valid, other);
  }
  template <typename Less>
  void StableSort(K (&keys)[Items], V (&values)[Items], Less is_less, int num_valid, K other) {
    Sorter::sort(storage_, keys, values, is_less, num_valid, false);
    pad(keys, num_valid, other);
  }
  template <typename... A>
  void Sort(K (&keys)[Items], A&&... rest) {
    StableSort(keys, rest...);
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  static void pad(K (&keys)[Items], int num_valid, const K& other) {
    for (int i = 0; i < Items; ++i) {
      if (static_cast<int>(loom_cuda::thread_rank()) * Items + i >= num_valid) keys[i] = other;
    }
  }
  TempStorage& storage_;
};

}  // namespace cub
