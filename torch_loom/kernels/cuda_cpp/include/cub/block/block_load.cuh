#pragma once

#include "cub/block/block_exchange.cuh"

namespace cub {

// Each thread has `Items` items in a row ("blocked"), or every N-th ("striped"). However the items get there,
// they are the same here.
template <typename T, int X, int Items, BlockLoadAlgorithm kAlgorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockLoad {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  BlockLoad() = default;
  explicit BlockLoad(TempStorage&) {}

  template <typename Iterator>
  void Load(Iterator from, T (&items)[Items]) {
    for (int i = 0; i < Items; ++i) items[i] = from[place(i)];
  }
  template <typename Iterator>
  void Load(Iterator from, T (&items)[Items], int num_valid) {
    for (int i = 0; i < Items; ++i) {
      if (place(i) < num_valid) items[i] = from[place(i)];
    }
  }
  template <typename Iterator, typename Default>
  void Load(Iterator from, T (&items)[Items], int num_valid, Default other) {
    for (int i = 0; i < Items; ++i) {
      if (place(i) < num_valid) {
        items[i] = from[place(i)];
      } else {
        items[i] = other;
      }
    }
  }

 private:
  static int place(int i) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    return kAlgorithm == BLOCK_LOAD_STRIPED ? rank + i * X * Y * Z : rank * Items + i;
  }
};

template <typename T, int Items, typename Iterator>
static inline void LoadDirectBlocked(int rank, Iterator from, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) items[i] = from[rank * Items + i];
}
template <int Threads, typename T, int Items, typename Iterator>
static inline void LoadDirectStriped(int rank, Iterator from, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) items[i] = from[rank + i * Threads];
}

}  // namespace cub
