#pragma once

#include "cub/common.h"

namespace cub {

// Values are combined in the order of the threads, and of their items. The operator may be one that does not
// commute. Each form takes one value a thread or an array of them; behind the operator may stand a reference
// for the sum of all, or a callback: the first warp calls it with that sum, and what its first lane returns
// stands before all values.
template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
  static constexpr int kThreads = X * Y * Z;
  template <typename P>
  static constexpr bool kIsCallback = requires(P& prefix, T all) { prefix(all); };

 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> values[kThreads + 1];  // the last: what a callback has returned
  };
  BlockScan() : storage_(own()) {}
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op) {
    T all;
    run<true>(in, out, op, all, nullptr);
  }
  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op, T& all) {
    run<true>(in, out, op, all, nullptr);
  }
  template <int Items, typename Op, typename Prefix>
    requires kIsCallback<Prefix>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op, Prefix& prefix) {
    T all;
    run<true>(in, out, op, all, nullptr, &prefix);
  }
  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op) {
    T all;
    run<true>(in, out, op, all, &initial);
  }
  template <int Items, typename Op>
  void InclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op, T& all) {
    run<true>(in, out, op, all, &initial);
  }
  // Without an initial value the first result is not written.
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], Op op) {
    T all;
    run<false>(in, out, op, all, nullptr);
  }
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], Op op, T& all) {
    run<false>(in, out, op, all, nullptr);
  }
  template <int Items, typename Op, typename Prefix>
    requires kIsCallback<Prefix>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], Op op, Prefix& prefix) {
    T all;
    run<false>(in, out, op, all, nullptr, &prefix);
  }
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op) {
    T all;
    run<false>(in, out, op, all, &initial);
  }
  template <int Items, typename Op>
  void ExclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op, T& all) {
    run<false>(in, out, op, all, &initial);
  }
  template <int Items, typename... A>
  void InclusiveSum(T (&in)[Items], T (&out)[Items], A&... rest) {
    InclusiveScan(in, out, cub::Sum(), rest...);
  }
  template <int Items, typename... A>
  void ExclusiveSum(T (&in)[Items], T (&out)[Items], A&... rest) {
    if constexpr ((kIsCallback<A> || ...)) {
      ExclusiveScan(in, out, cub::Sum(), rest...);
    } else {
      ExclusiveScan(in, out, T(), cub::Sum(), rest...);
    }
  }

  template <typename... A>
  void InclusiveScan(T in, T& out, A&&... rest) {
    T items[1] = {in};
    InclusiveScan(items, items, rest...);
    out = items[0];
  }
  template <typename... A>
  void ExclusiveScan(T in, T& out, A&&... rest) {
    T items[1] = {in}, results[1] = {out};
    ExclusiveScan(items, results, rest...);
    out = results[0];
  }
  template <typename... A>
  void InclusiveSum(T in, T& out, A&... rest) {
    InclusiveScan(in, out, cub::Sum(), rest...);
  }
  template <typename... A>
  void ExclusiveSum(T in, T& out, A&... rest) {
    T items[1] = {in};
    ExclusiveSum(items, items, rest...);
    out = items[0];
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }

  template <bool kIsInclusive, int Items, typename Op, typename Prefix = void>
  void run(T (&in)[Items], T (&out)[Items], Op& op, T& all, const T* initial, Prefix* prefix = nullptr) {
    T value = in[0];
    for (int i = 1; i < Items; ++i) value = op(value, in[i]);
    T before;
    bool has_before = scan(value, before, op, all);
    T returned;
    if constexpr (!std::is_void_v<Prefix>) {
      returned = prefixed(all, *prefix);
      initial = &returned;
    }
    if (initial != nullptr) {
      if (has_before) {
        before = op(*initial, before);
      } else {
        before = *initial;
      }
      has_before = true;
    }
    for (int i = 0; i < Items; ++i) {
      const T own = in[i];
      if (!kIsInclusive && has_before) out[i] = before;
      if (has_before) {
        before = op(before, own);
      } else {
        before = own;
      }
      has_before = true;
      if (kIsInclusive) out[i] = before;
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
      T sum = all;
      const T first = prefix(sum);
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
