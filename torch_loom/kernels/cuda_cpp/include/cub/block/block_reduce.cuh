#pragma once

#include "cub/common.h"

namespace cub {

// The result is the first thread's; the values are combined in the order of the threads.
template <typename T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1,
          int = 0>
class BlockReduce {
 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> values[X * Y * Z];
  };
  BlockReduce() : storage_(own()) {}
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  template <typename Op>
  T Reduce(T value, Op op, int num_valid) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    storage_.values[rank].Alias() = value;
    __syncthreads();
    if (rank == 0) {
      for (int i = 1; i < num_valid; ++i) value = op(value, storage_.values[i].Alias());
    }
    return value;
  }
  template <typename Op>
  T Reduce(T value, Op op) {
    return Reduce(value, op, X * Y * Z);
  }
  template <int Items, typename Op>
  T Reduce(T (&items)[Items], Op op) {
    T value = items[0];
    for (int i = 1; i < Items; ++i) value = op(value, items[i]);
    return Reduce(value, op);
  }
  T Sum(T value) { return Reduce(value, cub::Sum()); }
  T Sum(T value, int num_valid) { return Reduce(value, cub::Sum(), num_valid); }
  template <int Items>
  T Sum(T (&items)[Items]) {
    return Reduce(items, cub::Sum());
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  TempStorage& storage_;
};

}  // namespace cub
