// A thread's own items: sums over them and running sums, in their order; searches; what cub calls PTX.
#pragma once

#include <type_traits>

#include "cub/common.h"

namespace cub {
namespace internal {

template <int n, typename T, typename Op>
static inline T ThreadReduce(const T* input, Op op, T prefix) {
  for (int i = 0; i < n; ++i) prefix = static_cast<T>(op(prefix, input[i]));
  return prefix;
}
template <int n, typename T, typename Op>
static inline T ThreadReduce(const T* input, Op op) {
  return ThreadReduce<n - 1>(input + 1, op, input[0]);
}
template <typename T, int n, typename Op>
static inline T ThreadReduce(const T (&input)[n], Op op, std::common_type_t<T> prefix) {
  return ThreadReduce<n>(static_cast<const T*>(input), op, prefix);
}
template <typename T, int n, typename Op>
static inline T ThreadReduce(const T (&input)[n], Op op) {
  return ThreadReduce<n>(static_cast<const T*>(input), op);
}

template <int n, typename T, typename Op>
static inline T ThreadScanInclusive(const T* input, T* output, Op op, T prefix, bool has_prefix = true) {
  for (int i = 0; i < n; ++i) {
    prefix = has_prefix || i > 0 ? static_cast<T>(op(prefix, input[i])) : input[i];
    output[i] = prefix;
  }
  return prefix;
}
template <int n, typename T, typename Op>
static inline T ThreadScanInclusive(const T* input, T* output, Op op) {
  return ThreadScanInclusive<n>(input, output, op, input[0], false);
}
template <typename T, int n, typename Op>
static inline T ThreadScanInclusive(T (&input)[n], T (&output)[n], Op op, std::common_type_t<T> prefix,
                                    bool has_prefix = true) {
  return ThreadScanInclusive<n>(static_cast<const T*>(input), static_cast<T*>(output), op, prefix,
                                has_prefix);
}
template <typename T, int n, typename Op>
static inline T ThreadScanInclusive(T (&input)[n], T (&output)[n], Op op) {
  return ThreadScanInclusive<n>(static_cast<const T*>(input), static_cast<T*>(output), op);
}
// The first item keeps what it was where there is no prefix.
template <int n, typename T, typename Op>
static inline T ThreadScanExclusive(const T* input, T* output, Op op, T prefix, bool has_prefix = true) {
  T sum = has_prefix ? static_cast<T>(op(prefix, input[0])) : input[0];
  if (has_prefix) output[0] = prefix;
  for (int i = 1; i < n; ++i) {
    const T own = input[i];
    output[i] = sum;
    sum = static_cast<T>(op(sum, own));
  }
  return sum;
}
template <typename T, int n, typename Op>
static inline T ThreadScanExclusive(T (&input)[n], T (&output)[n], Op op, std::common_type_t<T> prefix,
                                    bool has_prefix = true) {
  return ThreadScanExclusive<n>(static_cast<const T*>(input), static_cast<T*>(output), op, prefix,
                                has_prefix);
}

}  // namespace internal
using internal::ThreadReduce;
using internal::ThreadScanExclusive;
using internal::ThreadScanInclusive;

// How many items are below `value`, and at most `value`; items are sorted.
template <typename I, typename Offset, typename T>
static inline Offset LowerBound(I items, Offset n, T value) {
  Offset begin = 0;
  while (n > 0) {
    const Offset half = n / 2;
    if (items[begin + half] < value) {
      begin += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return begin;
}
template <typename I, typename Offset, typename T>
static inline Offset UpperBound(I items, Offset n, T value) {
  Offset begin = 0;
  while (n > 0) {
    const Offset half = n / 2;
    if (value < items[begin + half]) {
      n = half;
    } else {
      begin += half + 1;
      n -= half + 1;
    }
  }
  return begin;
}

static inline unsigned LaneMaskLt() { return (1U << loom_cuda::lane()) - 1; }
static inline unsigned LaneMaskLe() { return LaneMaskLt() | 1U << loom_cuda::lane(); }
static inline unsigned LaneMaskGt() { return ~LaneMaskLe(); }
static inline unsigned LaneMaskGe() { return ~LaneMaskLt(); }
static inline void BFI(unsigned& result, unsigned x, unsigned y, unsigned first, unsigned count) {
  const unsigned mask = (count >= 32 ? ~0U : (1U << count) - 1) << first;
  result = (x & ~mask) | (y << first & mask);
}
static inline unsigned IADD3(unsigned x, unsigned y, unsigned z) { return x + y + z; }
static inline unsigned SHR_ADD(unsigned x, unsigned shift, unsigned addend) { return (x >> shift) + addend; }
static inline unsigned SHL_ADD(unsigned x, unsigned shift, unsigned addend) { return (x << shift) + addend; }
static inline int PRMT(unsigned a, unsigned b, unsigned selector) {
  return static_cast<int>(__byte_perm(a, b, selector));
}
template <int bits>
static inline unsigned MatchAny(unsigned label) {
  return __match_any_sync(0xffffffffU, bits >= 32 ? label : label & ((1U << bits % 32) - 1));
}
static inline int CTA_SYNC_AND(int predicate) { return __syncthreads_and(predicate); }
static inline int CTA_SYNC_OR(int predicate) { return __syncthreads_or(predicate); }
static inline int WARP_ANY(int predicate, unsigned mask) { return __any_sync(mask, predicate); }
static inline int WARP_ALL(int predicate, unsigned mask) { return __all_sync(mask, predicate); }
static inline unsigned WARP_BALLOT(int predicate, unsigned mask) { return __ballot_sync(mask, predicate); }
static inline void ThreadTrap() { __trap(); }

// Sums of values with the same key in a row: what a scan or a reduction by keys is made with.
template <typename Op>
struct ReduceByKeyOp {
  Op op;
  ReduceByKeyOp() = default;
  ReduceByKeyOp(Op op) : op(op) {}
  template <typename Pair>
  Pair operator()(const Pair& first, const Pair& second) const {
    Pair sum = second;
    if (first.key == second.key) sum.value = op(first.value, second.value);
    return sum;
  }
};
// Sums of values up to the last begin of a segment; `key`: how many segments have begun.
template <typename Op>
struct ReduceBySegmentOp {
  Op op;
  ReduceBySegmentOp() = default;
  ReduceBySegmentOp(Op op) : op(op) {}
  template <typename Pair>
  Pair operator()(const Pair& first, const Pair& second) const {
    Pair sum;
    sum.key = first.key + second.key;
    sum.value = second.key ? second.value : op(first.value, second.value);
    return sum;
  }
};

}  // namespace cub
