// Algorithms that return a number: they wait for it.
#pragma once

#include "thrust/execution_policy.h"
#include "thrust/functional.h"
#include "thrust/iterator/iterator_traits.h"
#include "thrust/iterator/transform_iterator.h"
#include "thrust/iterator/zip_iterator.h"
#include "thrust/replacing.h"

namespace thrust {

template <typename I, typename T = loom_detail::Value<I>, typename Op = plus<>>
inline T reduce(const execution_policy& policy, I first, I last, T initial = T(), Op op = {}) {
  return loom_detail::ask<T>(
      "thrust::reduce", policy,
      [](auto a, auto b, T value, Op op) {
        for (; a != b; ++a) value = op(value, *a);
        return value;
      },
      first, last, initial, op);
}
LOOM_THRUST_FORMS(reduce)
template <typename I, typename F, typename T, typename Op>
inline T transform_reduce(const execution_policy& policy, I first, I last, F f, T initial, Op op) {
  return loom_detail::ask<T>(
      "thrust::transform_reduce", policy,
      [](auto a, auto b, F f, T value, Op op) {
        for (; a != b; ++a) value = op(value, f(*a));
        return value;
      },
      first, last, f, initial, op);
}
LOOM_THRUST_FORMS(transform_reduce)
template <typename I, typename J, typename T, typename Op = plus<>, typename F = multiplies<>>
inline T inner_product(const execution_policy& policy, I first, I last, J second, T initial, Op op = {},
                       F f = {}) {
  return loom_detail::ask<T>(
      "thrust::inner_product", policy,
      [](auto a, auto b, auto c, T value, Op op, F f) {
        for (; a != b; ++a, ++c) value = op(value, f(*a, *c));
        return value;
      },
      first, last, second, initial, op, f);
}
LOOM_THRUST_FORMS(inner_product)
template <typename I, typename P>
inline ptrdiff_t count_if(const execution_policy& policy, I first, I last, P p) {
  return loom_detail::ask<ptrdiff_t>(
      "thrust::count_if", policy,
      [](auto a, auto b, P p) {
        ptrdiff_t count = 0;
        for (; a != b; ++a) count += p(*a) ? 1 : 0;
        return count;
      },
      first, last, p);
}
LOOM_THRUST_FORMS(count_if)
template <typename I, typename T>
inline ptrdiff_t count(const execution_policy& policy, I first, I last, T value) {
  return ::thrust::count_if(policy, first, last, loom_detail::Is<T>{value});
}
LOOM_THRUST_FORMS(count)

// --- where something is ---

template <typename I, typename P>
inline I find_if(const execution_policy& policy, I first, I last, P p) {
  return first + loom_detail::ask<ptrdiff_t>(
                     "thrust::find_if", policy,
                     [](auto a, auto b, P p) {
                       ptrdiff_t at = 0;
                       for (; a != b && !p(*a); ++a) ++at;
                       return at;
                     },
                     first, last, p);
}
LOOM_THRUST_FORMS(find_if)
template <typename I, typename P>
inline I find_if_not(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::find_if(policy, first, last, not1(p));
}
LOOM_THRUST_FORMS(find_if_not)
template <typename I, typename T>
inline I find(const execution_policy& policy, I first, I last, T value) {
  return ::thrust::find_if(policy, first, last, loom_detail::Is<T>{value});
}
LOOM_THRUST_FORMS(find)
template <typename I, typename P>
inline bool any_of(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::find_if(policy, first, last, p) != last;
}
LOOM_THRUST_FORMS(any_of)
template <typename I, typename P>
inline bool none_of(const execution_policy& policy, I first, I last, P p) {
  return !::thrust::any_of(policy, first, last, p);
}
LOOM_THRUST_FORMS(none_of)
template <typename I, typename P>
inline bool all_of(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::none_of(policy, first, last, not1(p));
}
LOOM_THRUST_FORMS(all_of)
template <typename I, typename J, typename P = equal_to<>>
inline pair<I, J> mismatch(const execution_policy& policy, I first, I last, J second, P p = {}) {
  const auto at = loom_detail::ask<ptrdiff_t>(
      "thrust::mismatch", policy,
      [](auto a, auto b, auto c, P p) {
        ptrdiff_t at = 0;
        for (; a != b && p(*a, *c); ++a, ++c) ++at;
        return at;
      },
      first, last, second, p);
  return {first + at, second + at};
}
LOOM_THRUST_FORMS(mismatch)
template <typename I, typename J, typename P = equal_to<>>
inline bool equal(const execution_policy& policy, I first, I last, J second, P p = {}) {
  return ::thrust::mismatch(policy, first, last, second, p).first == last;
}
LOOM_THRUST_FORMS(equal)

// Of equal ones the first.
template <typename I, typename Less = less<>>
inline pair<I, I> minmax_element(const execution_policy& policy, I first, I last, Less is_less = {}) {
  const auto at = loom_detail::ask<pair<ptrdiff_t, ptrdiff_t>>(
      "thrust::minmax_element", policy,
      [](auto a, auto b, Less is_less) {
        pair<ptrdiff_t, ptrdiff_t> at(0, 0);
        for (ptrdiff_t i = 1, n = b - a; i < n; ++i) {
          if (is_less(a[i], a[at.first])) at.first = i;
          if (is_less(a[at.second], a[i])) at.second = i;
        }
        return at;
      },
      first, last, is_less);
  return {first + at.first, first + at.second};
}
LOOM_THRUST_FORMS(minmax_element)
template <typename I, typename Less = less<>>
inline I min_element(const execution_policy& policy, I first, I last, Less is_less = {}) {
  return ::thrust::minmax_element(policy, first, last, is_less).first;
}
LOOM_THRUST_FORMS(min_element)
template <typename I, typename Less = less<>>
inline I max_element(const execution_policy& policy, I first, I last, Less is_less = {}) {
  return ::thrust::minmax_element(policy, first, last, is_less).second;
}
LOOM_THRUST_FORMS(max_element)

template <typename I, typename Less = less<>>
inline I is_sorted_until(const execution_policy& policy, I first, I last, Less is_less = {}) {
  return first + loom_detail::ask<ptrdiff_t>(
                     "thrust::is_sorted_until", policy,
                     [](auto a, auto b, Less is_less) {
                       const ptrdiff_t n = b - a;
                       ptrdiff_t at = n < 1 ? n : 1;
                       while (at < n && !is_less(a[at], a[at - 1])) ++at;
                       return at;
                     },
                     first, last, is_less);
}
LOOM_THRUST_FORMS(is_sorted_until)
template <typename I, typename Less = less<>>
inline bool is_sorted(const execution_policy& policy, I first, I last, Less is_less = {}) {
  return ::thrust::is_sorted_until(policy, first, last, is_less) == last;
}
LOOM_THRUST_FORMS(is_sorted)
template <typename I, typename P>
inline I partition_point(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::find_if_not(policy, first, last, p);
}
LOOM_THRUST_FORMS(partition_point)
template <typename I, typename P>
inline bool is_partitioned(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::none_of(policy, ::thrust::partition_point(policy, first, last, p), last, p);
}
LOOM_THRUST_FORMS(is_partitioned)

}  // namespace thrust
