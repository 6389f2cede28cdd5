#pragma once

#include "cub/common.h"

namespace cub {

// Values are combined in the order of the threads, and of their items. The operator may be one that does not
// commute.
template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
  static constexpr int kThreads = X * Y * Z;

 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> values[kThreads + 1];  // the last: what a callback has returned
  };
  BlockScan() : storage_(own()) {}
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  template <typename Op>
  void InclusiveScan(T in, T& out, Op op) {
    T all;
    InclusiveScan(in, out, op, all);
  }
  template <typename Op>
  void InclusiveScan(T in, T& out, Op op, T& all) {
    T before;
    const bool has_before = scan(in, before, op, all);
    out = has_before ? op(before, in) : in;
  }
  // `prefix` is called by the first warp with the sum of all; what its first lane returns stands before them.
  template <typename Op, typename Prefix>
    requires requires(Prefix& p, T t) { p(t); }
  void InclusiveScan(T in, T& out, Op op, Prefix& prefix) {
    T before, all;
    const bool has_before = scan(in, before, op, all);
    const T first = prefixed(all, prefix);
    out = op(has_before ? op(first, before) : first, in);
  }
  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op) {
    T all;
    InclusiveScan(in, out, op, all);
  }
  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op, T& all) {
    T before;
    const bool has_before = scan(sum_of(in, op), before, op, all);
    T value = in[0];
    if (has_before) value = op(before, value);
    spread(in, out, value, op);
  }
  template <int Items, typename Op, typename Prefix>
    requires requires(Prefix& p, T t) { p(t); }
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op, Prefix& prefix) {
    T before, all;
    const bool has_before = scan(sum_of(in, op), before, op, all);
    const T first = prefixed(all, prefix);
    spread(in, out, op(has_before ? op(first, before) : first, in[0]), op);
  }

  template <typename Op>
  void ExclusiveScan(T in, T& out, T initial, Op op) {
    T all;
    ExclusiveScan(in, out, initial, op, all);
  }
  template <typename Op>
  void ExclusiveScan(T in, T& out, T initial, Op op, T& all) {
    T before;
    const bool has_before = scan(in, before, op, all);
    out = has_before ? op(initial, before) : initial;
  }
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op) {
    T all;
    ExclusiveScan(in, out, initial, op, all);
  }
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op, T& all) {
    T before;
    const bool has_before = scan(sum_of(in, op), before, op, all);
    T value = has_before ? op(initial, before) : initial;
    for (int i = 0; i < Items; ++i) {
      const T own = in[i];
      out[i] = value;
      value = op(value, own);
    }
  }

  void InclusiveSum(T in, T& out) { InclusiveScan(in, out, cub::Sum()); }
  void InclusiveSum(T in, T& out, T& all) { InclusiveScan(in, out, cub::Sum(), all); }
  void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), cub::Sum()); }
  void ExclusiveSum(T in, T& out, T& all) { ExclusiveScan(in, out, T(), cub::Sum(), all); }
  template <int Items>
  void InclusiveSum(T (&in)[Items], T (&out)[Items]) {
    InclusiveScan(in, out, cub::Sum());
  }
  template <int Items>
  void InclusiveSum(T (&in)[Items], T (&out)[Items], T& all) {
    InclusiveScan(in, out, cub::Sum(), all);
  }
  template <int Items>
  void ExclusiveSum(T (&in)[Items], T (&out)[Items]) {
    ExclusiveScan(in, out, T(), cub::Sum());
  }
  template <int Items>
  void ExclusiveSum(T (&in)[Items], T (&out)[Items], T& all) {
    ExclusiveScan(in, out, T(), cub::Sum(), all);
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }

  template <int Items, typename Op>
  static T sum_of(T (&in)[Items], Op& op) {
    T value = in[0];
    for (int i = 1; i < Items; ++i) value = op(value, in[i]);
    return value;
  }
  template <int Items, typename Op>
  static void spread(T (&in)[Items], T (&out)[Items], T value, Op& op) {
    out[0] = value;
    for (int i = 1; i < Items; ++i) {
      value = op(value, in[i]);
      out[i] = value;
    }
  }

  // What the threads before this one have together, unless it is the first, and what all have.
  template <typename Op>
  bool scan(const T& in, T& before, Op& op, T& all) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    storage_.values[rank].Alias() = in;
    __syncthreads();
    // One thread adds up, where each reads then.
    if (rank == 0) {
      for (int i = 1; i < kThreads; ++i) {
        storage_.values[i].Alias() = op(storage_.values[i - 1].Alias(), storage_.values[i].Alias());
      }
    }
    __syncthreads();
    all = storage_.values[kThreads - 1].Alias();
    if (rank > 0) before = storage_.values[rank - 1].Alias();
    __syncthreads();
    return rank > 0;
  }
  template <typename Prefix>
  T prefixed(const T& all, Prefix& prefix) {
    if (loom_cuda::thread_rank() < 32) {
      const T first = prefix(all);
      if (loom_cuda::thread_rank() == 0) storage_.values[kThreads].Alias() = first;
    }
    __syncthreads();
    const T first = storage_.values[kThreads].Alias();
    __syncthreads();
    return first;
  }

  TempStorage& storage_;
};

}  // namespace cub
