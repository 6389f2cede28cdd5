#pragma once

#include <limits.h>

#include "cub/block/block_exchange.cuh"

namespace cub {
namespace loom_detail {

template <typename Place, typename Iterator, typename T, int Items>
static inline void store(Place place, Iterator to, T (&items)[Items], int num_valid) {
  for (int i = 0; i < Items; ++i) {
    if (place(i) < num_valid) to[place(i)] = items[i];
  }
}

}  // namespace loom_detail

template <typename T, int X, int Items, BlockStoreAlgorithm kAlgorithm = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockStore {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  BlockStore() = default;
  explicit BlockStore(TempStorage&) {}

  template <typename Iterator>
  void Store(Iterator to, T (&items)[Items], int num_valid = INT_MAX) {
    loom_detail::store(place, to, items, num_valid);
  }

 private:
  static int place(int i) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    return kAlgorithm == BLOCK_STORE_STRIPED ? rank + i * X * Y * Z : rank * Items + i;
  }
};

// The same as functions.
template <typename T, int Items, typename Iterator>
static inline void StoreDirectBlocked(int rank, Iterator to, T (&items)[Items], int num_valid = INT_MAX) {
  loom_detail::store([=](int i) { return rank * Items + i; }, to, items, num_valid);
}
template <int Threads, typename T, int Items, typename Iterator>
static inline void StoreDirectStriped(int rank, Iterator to, T (&items)[Items], int num_valid = INT_MAX) {
  loom_detail::store([=](int i) { return rank + i * Threads; }, to, items, num_valid);
}
template <typename T, int Items, typename Iterator>
static inline void StoreDirectWarpStriped(int rank, Iterator to, T (&items)[Items], int num_valid = INT_MAX) {
  loom_detail::store([=](int i) { return rank / 32 * 32 * Items + rank % 32 + i * 32; }, to, items,
                     num_valid);
}
template <typename T, int Items>
static inline void StoreDirectBlockedVectorized(int rank, T* to, T (&items)[Items]) {
  StoreDirectBlocked(rank, to, items);
}

}  // namespace cub
