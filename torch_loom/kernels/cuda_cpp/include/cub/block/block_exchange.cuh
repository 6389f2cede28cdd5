#pragma once

#include "cub/common.h"

namespace cub {

template <typename T, int X, int Items, bool = false, int Y = 1, int Z = 1, int = 0>
class BlockExchange {
  static constexpr int kThreads = X * Y * Z;

 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> items[kThreads * Items];
  };
  explicit BlockExchange(TempStorage& storage) : storage_(storage) {}

  template <typename U>
  void StripedToBlocked(T (&in)[Items], U (&out)[Items]) {
    move(in, out, [](int i) { return rank() + i * kThreads; }, [](int i) { return rank() * Items + i; });
  }
  template <typename U>
  void BlockedToStriped(T (&in)[Items], U (&out)[Items]) {
    move(in, out, [](int i) { return rank() * Items + i; }, [](int i) { return rank() + i * kThreads; });
  }
  void StripedToBlocked(T (&items)[Items]) { StripedToBlocked(items, items); }
  void BlockedToStriped(T (&items)[Items]) { BlockedToStriped(items, items); }

 private:
  static int rank() { return static_cast<int>(loom_cuda::thread_rank()); }
  template <typename U, typename From, typename To>
  void move(T (&in)[Items], U (&out)[Items], From&& from, To&& to) {
    for (int i = 0; i < Items; ++i) storage_.items[from(i)].Alias() = in[i];
    __syncthreads();
    for (int i = 0; i < Items; ++i) out[i] = storage_.items[to(i)].Alias();
    __syncthreads();
  }
  TempStorage& storage_;
};

}  // namespace cub
