// Prefix sums, of a whole and of runs of equal keys. They may write where they read.
#pragma once

#include "thrust/execution_policy.h"
#include "thrust/functional.h"

namespace thrust {

template <typename I, typename O, typename F, typename Op>
inline O transform_inclusive_scan(const execution_policy& policy, I first, I last, O out, F f, Op op) {
  loom_detail::submit(
      "thrust::inclusive_scan", policy,
      [](auto a, auto b, auto o, F f, Op op) {
        if (a == b) return;
        using T = std::remove_cvref_t<decltype(f(*a))>;
        T value = f(*a);
        *o = value;
        for (++a, ++o; a != b; ++a, ++o) *o = value = op(value, f(*a));
      },
      first, last, out, f, op);
  return out + (last - first);
}
// From an initial value on.
template <typename I, typename O, typename F, typename T, typename Op>
inline O transform_inclusive_scan(const execution_policy& policy, I first, I last, O out, F f, T initial,
                                  Op op) {
  loom_detail::submit(
      "thrust::inclusive_scan", policy,
      [](auto a, auto b, auto o, F f, T value, Op op) {
        for (; a != b; ++a, ++o) *o = value = op(value, f(*a));
      },
      first, last, out, f, initial, op);
  return out + (last - first);
}
LOOM_THRUST_FORMS(transform_inclusive_scan)
template <typename I, typename O, typename F, typename T, typename Op>
inline O transform_exclusive_scan(const execution_policy& policy, I first, I last, O out, F f, T initial,
                                  Op op) {
  loom_detail::submit(
      "thrust::exclusive_scan", policy,
      [](auto a, auto b, auto o, F f, T value, Op op) {
        for (; a != b; ++a, ++o) {
          const auto own = f(*a);
          *o = value;
          value = op(value, own);
        }
      },
      first, last, out, f, initial, op);
  return out + (last - first);
}
LOOM_THRUST_FORMS(transform_exclusive_scan)

template <typename I, typename O, typename Op = plus<>>
inline O inclusive_scan(const execution_policy& policy, I first, I last, O out, Op op = {}) {
  return ::thrust::transform_inclusive_scan(policy, first, last, out, identity<loom_detail::Value<I>>(), op);
}
template <typename I, typename O, typename T, typename Op>
inline O inclusive_scan(const execution_policy& policy, I first, I last, O out, T initial, Op op) {
  return ::thrust::transform_inclusive_scan(policy, first, last, out, identity<loom_detail::Value<I>>(),
                                            initial, op);
}
LOOM_THRUST_FORMS(inclusive_scan)
template <typename I, typename O, typename T = loom_detail::Value<I>, typename Op = plus<>>
inline O exclusive_scan(const execution_policy& policy, I first, I last, O out, T initial = T(), Op op = {}) {
  return ::thrust::transform_exclusive_scan(policy, first, last, out, identity<loom_detail::Value<I>>(),
                                            initial, op);
}
LOOM_THRUST_FORMS(exclusive_scan)

template <typename K, typename I, typename O, typename Equal = equal_to<>, typename Op = plus<>>
inline O inclusive_scan_by_key(const execution_policy& policy, K keys, K keys_end, I in, O out,
                               Equal equal = {}, Op op = {}) {
  loom_detail::submit(
      "thrust::inclusive_scan_by_key", policy,
      [](auto keys, auto end, auto in, auto out, Equal equal, Op op) {
        const ptrdiff_t n = end - keys;
        if (n == 0) return;
        loom_detail::Value<I> value = in[0];
        loom_detail::Value<K> key = keys[0];
        out[0] = value;
        for (ptrdiff_t i = 1; i < n; ++i) {
          const loom_detail::Value<K> next = keys[i];
          const loom_detail::Value<I> own = in[i];
          value = equal(key, next) ? static_cast<loom_detail::Value<I>>(op(value, own)) : own;
          out[i] = value;
          key = next;
        }
      },
      keys, keys_end, in, out, equal, op);
  return out + (keys_end - keys);
}
LOOM_THRUST_FORMS(inclusive_scan_by_key)
template <typename K, typename I, typename O, typename T = loom_detail::Value<I>, typename Equal = equal_to<>,
          typename Op = plus<>>
inline O exclusive_scan_by_key(const execution_policy& policy, K keys, K keys_end, I in, O out,
                               T initial = T(), Equal equal = {}, Op op = {}) {
  loom_detail::submit(
      "thrust::exclusive_scan_by_key", policy,
      [](auto keys, auto end, auto in, auto out, T initial, Equal equal, Op op) {
        const ptrdiff_t n = end - keys;
        if (n == 0) return;
        loom_detail::Value<K> key = keys[0];
        T value = initial;
        for (ptrdiff_t i = 0; i < n; ++i) {
          const loom_detail::Value<K> next = keys[i];
          const loom_detail::Value<I> own = in[i];
          if (i > 0 && !equal(key, next)) value = initial;
          out[i] = value;
          value = op(value, own);
          key = next;
        }
      },
      keys, keys_end, in, out, initial, equal, op);
  return out + (keys_end - keys);
}
LOOM_THRUST_FORMS(exclusive_scan_by_key)

template <typename I, typename O, typename Op = minus<>>
inline O adjacent_difference(const execution_policy& policy, I first, I last, O out, Op op = {}) {
  loom_detail::submit(
      "thrust::adjacent_difference", policy,
      [](auto a, auto b, auto o, Op op) {
        const ptrdiff_t n = b - a;
        if (n == 0) return;
        loom_detail::Value<I> before = a[0];
        o[0] = before;
        for (ptrdiff_t i = 1; i < n; ++i) {
          const loom_detail::Value<I> own = a[i];
          o[i] = op(own, before);
          before = own;
        }
      },
      first, last, out, op);
  return out + (last - first);
}
LOOM_THRUST_FORMS(adjacent_difference)

}  // namespace thrust
