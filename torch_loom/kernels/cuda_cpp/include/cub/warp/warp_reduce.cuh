// Sums and prefix sums of lanes: the last lane that comes computes for all.
#pragma once

#include "cub/common.h"

namespace cub {
namespace loom_detail {

// The lanes of the group of `N` that this thread is in.
template <int N>
static inline unsigned group_mask() {
  return (N == 32 ? 0xffffffffU : (1U << N % 32) - 1) << loom_cuda::lane() / N * N;
}
template <int N>
static inline int group_rank() {
  return static_cast<int>(loom_cuda::lane() % 32) % N;
}

// What each lane gives and gets.
template <typename T, typename Op>
struct Lane {
  T value;
  Op* op;
  bool begins, ends;  // a segment
  T before;           // what the lanes in front of this one in its segment have together
  bool has_before;
  T all;  // of its segment
};
template <typename T, typename Op>
static void combine_lanes(void* const* given, unsigned lanes) {
  const loom_cuda::Unchecked own_memory;
  using Own = Lane<T, Op>;
  Own* last = nullptr;
  for (unsigned l = 0; l < 32; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    Own& own = *static_cast<Own*>(given[l]);
    own.has_before = last != nullptr && !own.begins && !last->ends;
    if (own.has_before) {
      own.before = last->all;
      own.all = (*own.op)(own.before, own.value);
    } else {
      own.all = own.value;
    }
    last = &own;
  }
}
// The sum of a segment stands with its last lane.
template <typename T, typename Op>
static void combine_segments(void* const* given, unsigned lanes) {
  const loom_cuda::Unchecked own_memory;
  combine_lanes<T, Op>(given, lanes);
  using Own = Lane<T, Op>;
  Own* behind = nullptr;
  for (unsigned l = 32; l-- > 0;) {
    if ((lanes >> l & 1) == 0) continue;
    Own& own = *static_cast<Own*>(given[l]);
    if (behind != nullptr && behind->has_before) own.all = behind->all;
    behind = &own;
  }
}

}  // namespace loom_detail

// Among `N` lanes in a row; the result is the first lane's, and all others' as well.
template <typename T, int N = 32, int = 0>
class WarpReduce {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpReduce() = default;
  explicit WarpReduce(TempStorage&) {}
  template <typename Op>
  T Reduce(T value, Op op) {
    return segment_sum(value, false, op);
  }
  // Of the first lanes.
  template <typename Op>
  T Reduce(T value, Op op, int num_valid) {
    return segment_sum(value, loom_detail::group_rank<N>() == num_valid, op);
  }
  T Sum(T value) { return Reduce(value, cub::Sum()); }
  T Sum(T value, int num_valid) { return Reduce(value, cub::Sum(), num_valid); }
  T Max(T value) { return Reduce(value, cub::Max()); }
  T Max(T value, int num_valid) { return Reduce(value, cub::Max(), num_valid); }
  T Min(T value) { return Reduce(value, cub::Min()); }
  T Min(T value, int num_valid) { return Reduce(value, cub::Min(), num_valid); }

  // A flag marks where a segment begins, or ends.
  template <typename F, typename Op>
  T HeadSegmentedReduce(T value, F is_head, Op op) {
    return segment_sum(value, is_head != 0, op);
  }
  template <typename F, typename Op>
  T TailSegmentedReduce(T value, F is_tail, Op op) {
    return segment_sum(value, false, op, is_tail != 0);
  }
  template <typename F>
  T HeadSegmentedSum(T value, F is_head) {
    return HeadSegmentedReduce(value, is_head, cub::Sum());
  }
  template <typename F>
  T TailSegmentedSum(T value, F is_tail) {
    return TailSegmentedReduce(value, is_tail, cub::Sum());
  }

 private:
  template <typename Op>
  static T segment_sum(const T& value, bool begins, Op& op, bool ends = false) {
    loom_detail::Lane<T, Op> own{value, &op, begins, ends, value, false, value};
    loom_cuda::meet(loom_detail::group_mask<N>(), own, &loom_detail::combine_segments<T, Op>);
    return own.all;
  }
};

// The sum of all lanes may be asked for behind the operator.
template <typename T, int N = 32, int = 0>
class WarpScan {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpScan() = default;
  explicit WarpScan(TempStorage&) {}

  template <typename Op>
  void InclusiveScan(T in, T& out, Op op) {
    out = scanned(in, op).all;
  }
  template <typename Op>
  void InclusiveScan(T in, T& out, Op op, T& all) {
    out = scanned(in, op).all;
    all = Broadcast(out, N - 1);
  }
  template <typename Op>
  void InclusiveScan(T in, T& out, T initial, Op op) {
    out = op(initial, scanned(in, op).all);
  }
  template <typename Op>
  void InclusiveScan(T in, T& out, T initial, Op op, T& all) {
    out = op(initial, scanned(in, op).all);
    all = Broadcast(out, N - 1);
  }
  // Without an initial value the first result is not written.
  template <typename Op>
  void ExclusiveScan(T in, T& out, Op op) {
    const auto own = scanned(in, op);
    if (own.has_before) out = own.before;
  }
  template <typename Op>
  void ExclusiveScan(T in, T& out, Op op, T& all) {
    const auto own = scanned(in, op);
    if (own.has_before) out = own.before;
    all = Broadcast(own.all, N - 1);
  }
  template <typename Op>
  void ExclusiveScan(T in, T& out, T initial, Op op) {
    const auto own = scanned(in, op);
    out = own.has_before ? static_cast<T>(op(initial, own.before)) : initial;
  }
  template <typename Op>
  void ExclusiveScan(T in, T& out, T initial, Op op, T& all) {
    const auto own = scanned(in, op);
    out = own.has_before ? static_cast<T>(op(initial, own.before)) : initial;
    all = Broadcast(own.all, N - 1);
  }
  void InclusiveSum(T in, T& out) { InclusiveScan(in, out, cub::Sum()); }
  void InclusiveSum(T in, T& out, T& all) { InclusiveScan(in, out, cub::Sum(), all); }
  void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), cub::Sum()); }
  void ExclusiveSum(T in, T& out, T& all) { ExclusiveScan(in, out, T(), cub::Sum(), all); }
  template <typename Op>
  void Scan(T in, T& inclusive, T& exclusive, Op op) {
    const auto own = scanned(in, op);
    inclusive = own.all;
    if (own.has_before) exclusive = own.before;
  }
  template <typename Op>
  void Scan(T in, T& inclusive, T& exclusive, T initial, Op op) {
    const auto own = scanned(in, op);
    inclusive = op(initial, own.all);
    exclusive = own.has_before ? static_cast<T>(op(initial, own.before)) : initial;
  }
  // The value of a lane of the group; of the last one that is there, if that one is not.
  T Broadcast(T value, unsigned source) {
    Given own{value, source};
    loom_cuda::meet(loom_detail::group_mask<N>(), own, &broadcast);
    return own.value;
  }

 private:
  struct Given {
    T value;
    unsigned source;
  };
  static void broadcast(void* const* given, unsigned lanes) {
    const loom_cuda::Unchecked own_memory;
    const Given* from = nullptr;
    for (unsigned l = 0; l < 32; ++l) {
      if ((lanes >> l & 1) == 0) continue;
      const auto* own = static_cast<const Given*>(given[l]);
      if (from == nullptr || l % N <= own->source) from = own;
    }
    const T value = from->value;
    for (unsigned l = 0; l < 32; ++l) {
      if (lanes >> l & 1) static_cast<Given*>(given[l])->value = value;
    }
  }
  template <typename Op>
  static loom_detail::Lane<T, Op> scanned(const T& value, Op& op) {
    loom_detail::Lane<T, Op> own{value, &op, false, false, value, false, value};
    loom_cuda::meet(loom_detail::group_mask<N>(), own, &loom_detail::combine_lanes<T, Op>);
    return own;
  }
};

}  // namespace cub
