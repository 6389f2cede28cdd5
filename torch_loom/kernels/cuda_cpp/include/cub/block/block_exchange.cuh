#pragma once

#include "cub/common.h"

namespace cub {

// Moves items between threads. Striped: each thread has every N-th; of a warp: every 32nd of the warp's.
template <typename T, int X, int Items, bool = false, int Y = 1, int Z = 1, int = 0>
class BlockExchange {
  static constexpr int kThreads = X * Y * Z, kItems = kThreads * Items;

 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> items[kItems];
  };
  BlockExchange() : storage_(own()) {}
  explicit BlockExchange(TempStorage& storage) : storage_(storage) {}

#define LOOM_CUB_EXCHANGE(name, from, to)          \
  template <typename U>                            \
  void name(const T(&in)[Items], U(&out)[Items]) { \
    move(in, out, from, to);                       \
  }                                                \
  void name(T(&items)[Items]) { move(items, items, from, to); }
  LOOM_CUB_EXCHANGE(StripedToBlocked, striped, blocked)
  LOOM_CUB_EXCHANGE(BlockedToStriped, blocked, striped)
  LOOM_CUB_EXCHANGE(WarpStripedToBlocked, warp_striped, blocked)
  LOOM_CUB_EXCHANGE(BlockedToWarpStriped, blocked, warp_striped)
#undef LOOM_CUB_EXCHANGE

  // Item i goes to place ranks[i].
#define LOOM_CUB_SCATTER(name, to)                                         \
  template <typename U, typename R>                                        \
  void name(const T(&in)[Items], U(&out)[Items], const R(&ranks)[Items]) { \
    move(in, out, [&](int i) { return static_cast<int>(ranks[i]); }, to);  \
  }                                                                        \
  template <typename R>                                                    \
  void name(T(&items)[Items], const R(&ranks)[Items]) {                    \
    name(items, items, ranks);                                             \
  }
  LOOM_CUB_SCATTER(ScatterToBlocked, blocked)
  LOOM_CUB_SCATTER(ScatterToStriped, striped)
  LOOM_CUB_SCATTER(ScatterToStripedGuarded, striped)  // those with ranks below 0 go nowhere
#undef LOOM_CUB_SCATTER
  template <typename U, typename R, typename F>
  void ScatterToStripedFlagged(const T (&in)[Items], U (&out)[Items], const R (&ranks)[Items],
                               const F (&are_valid)[Items]) {
    move(in, out, [&](int i) { return are_valid[i] ? static_cast<int>(ranks[i]) : -1; }, striped);
  }
  template <typename R, typename F>
  void ScatterToStripedFlagged(T (&items)[Items], const R (&ranks)[Items], const F (&are_valid)[Items]) {
    ScatterToStripedFlagged(items, items, ranks, are_valid);
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  static int rank() { return static_cast<int>(loom_cuda::thread_rank()); }
  static int blocked(int i) { return rank() * Items + i; }
  static int striped(int i) { return rank() + i * kThreads; }
  static int warp_striped(int i) {
    const int warp = rank() / 32, lanes = kThreads - warp * 32 < 32 ? kThreads - warp * 32 : 32;
    return warp * 32 * Items + rank() % 32 + i * lanes;
  }
  template <typename U, typename From, typename To>
  void move(const T (&in)[Items], U (&out)[Items], From&& from, To&& to) {
    for (int i = 0; i < Items; ++i) {
      const int place = from(i);
      if (place >= 0 && place < kItems) storage_.items[place].Alias() = in[i];
    }
    __syncthreads();
    for (int i = 0; i < Items; ++i) out[i] = storage_.items[to(i)].Alias();
    __syncthreads();
  }
  TempStorage& storage_;
};

}  // namespace cub
