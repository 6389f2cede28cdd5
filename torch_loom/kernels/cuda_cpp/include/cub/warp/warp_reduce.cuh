#pragma once

#include "cub/common.h"

namespace cub {

// Among `N` lanes in a row; the result is the first lane's, and all others' as well.
template <typename T, int N = 32, int = 0>
class WarpReduce {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpReduce() = default;
  explicit WarpReduce(TempStorage&) {}
  template <typename Op>
  T Reduce(T value, Op op) {
    return Reduce(value, op, N);
  }
  template <typename Op>
  T Reduce(T value, Op op, int num_valid) {
    const int rank = static_cast<int>(loom_cuda::lane()) % N;
    for (int delta = 1; delta < N; delta *= 2) {
      const T other = __shfl_down_sync(mask(), value, static_cast<unsigned>(delta), N);
      if (rank + delta < num_valid) value = op(value, other);
    }
    return value;
  }
  T Sum(T value) { return Reduce(value, cub::Sum()); }
  T Sum(T value, int num_valid) { return Reduce(value, cub::Sum(), num_valid); }

 private:
  static unsigned mask() { return (N == 32 ? 0xffffffffU : (1U << N % 32) - 1) << loom_cuda::lane() / N * N; }
};

template <typename T, int N = 32, int = 0>
class WarpScan {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  explicit WarpScan(TempStorage&) {}
  template <typename Op>
  void InclusiveScan(T in, T& out, Op op) {
    const int rank = static_cast<int>(loom_cuda::lane()) % N;
    for (int delta = 1; delta < N; delta *= 2) {
      const T other = __shfl_up_sync(mask(), in, static_cast<unsigned>(delta), N);
      if (rank >= delta) in = op(other, in);
    }
    out = in;
  }
  void InclusiveSum(T in, T& out) { InclusiveScan(in, out, cub::Sum()); }
  void ExclusiveSum(T in, T& out) {
    T sum;
    InclusiveScan(in, sum, cub::Sum());
    sum = __shfl_up_sync(mask(), sum, 1, N);
    out = loom_cuda::lane() % N == 0 ? T() : sum;
  }

 private:
  static unsigned mask() { return (N == 32 ? 0xffffffffU : (1U << N % 32) - 1) << loom_cuda::lane() / N * N; }
};

}  // namespace cub
