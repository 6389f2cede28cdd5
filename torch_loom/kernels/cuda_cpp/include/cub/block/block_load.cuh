#pragma once

#include "cub/block/block_exchange.cuh"

namespace cub {
namespace loom_detail {

template <typename Place, typename Iterator, typename T, int Items>
static inline void load(Place place, Iterator from, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) items[i] = from[place(i)];
}
// Items behind `num_valid` stay as they are.
template <typename Place, typename Iterator, typename T, int Items>
static inline void load(Place place, Iterator from, T (&items)[Items], int num_valid) {
  for (int i = 0; i < Items; ++i) {
    if (place(i) < num_valid) items[i] = from[place(i)];
  }
}
template <typename Place, typename Iterator, typename T, int Items, typename Default>
static inline void load(Place place, Iterator from, T (&items)[Items], int num_valid, Default other) {
  for (int i = 0; i < Items; ++i) items[i] = other;
  load(place, from, items, num_valid);
}

}  // namespace loom_detail

// Each thread has `Items` items in a row ("blocked"), or every N-th ("striped"). However the items get there,
// they are the same here.
template <typename T, int X, int Items, BlockLoadAlgorithm kAlgorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockLoad {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  BlockLoad() = default;
  explicit BlockLoad(TempStorage&) {}

  // Behind the items: how many are valid, and what the others are.
  template <typename Iterator, typename... Rest>
  void Load(Iterator from, T (&items)[Items], Rest... rest) {
    loom_detail::load(place, from, items, rest...);
  }

 private:
  static int place(int i) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    return kAlgorithm == BLOCK_LOAD_STRIPED ? rank + i * X * Y * Z : rank * Items + i;
  }
};

// The same as functions.
template <typename T, int Items, typename Iterator, typename... Rest>
static inline void LoadDirectBlocked(int rank, Iterator from, T (&items)[Items], Rest... rest) {
  loom_detail::load([=](int i) { return rank * Items + i; }, from, items, rest...);
}
template <int Threads, typename T, int Items, typename Iterator, typename... Rest>
static inline void LoadDirectStriped(int rank, Iterator from, T (&items)[Items], Rest... rest) {
  loom_detail::load([=](int i) { return rank + i * Threads; }, from, items, rest...);
}
template <typename T, int Items, typename Iterator, typename... Rest>
static inline void LoadDirectWarpStriped(int rank, Iterator from, T (&items)[Items], Rest... rest) {
  loom_detail::load([=](int i) { return rank / 32 * 32 * Items + rank % 32 + i * 32; }, from, items, rest...);
}
template <typename T, int Items, typename U>
static inline void LoadDirectBlockedVectorized(int rank, U* from, T (&items)[Items]) {
  LoadDirectBlocked(rank, from, items);
}

}  // namespace cub
