#pragma once

#include "cub/block/block_exchange.cuh"

namespace cub {

template <typename T, int X, int Items, BlockStoreAlgorithm kAlgorithm = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockStore {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  BlockStore() = default;
  explicit BlockStore(TempStorage&) {}

  template <typename Iterator>
  void Store(Iterator to, T (&items)[Items]) {
    for (int i = 0; i < Items; ++i) to[place(i)] = items[i];
  }
  template <typename Iterator>
  void Store(Iterator to, T (&items)[Items], int num_valid) {
    for (int i = 0; i < Items; ++i) {
      if (place(i) < num_valid) to[place(i)] = items[i];
    }
  }

 private:
  static int place(int i) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    return kAlgorithm == BLOCK_STORE_STRIPED ? rank + i * X * Y * Z : rank * Items + i;
  }
};

template <typename T, int Items, typename Iterator>
static inline void StoreDirectBlocked(int rank, Iterator to, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) to[rank * Items + i] = items[i];
}

}  // namespace cub
