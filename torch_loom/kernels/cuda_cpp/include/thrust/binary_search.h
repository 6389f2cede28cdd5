// Where values stand in a sorted range: of one value, and of many.
#pragma once

#include <algorithm>

#include "thrust/execution_policy.h"
#include "thrust/functional.h"
#include "thrust/pair.h"

namespace thrust {
namespace loom_detail {

struct LowerBound {
  template <typename I, typename T, typename Less>
  ptrdiff_t operator()(I first, I last, const T& value, Less& is_less) const {
    ptrdiff_t low = 0, high = last - first;
    while (low < high) {
      const ptrdiff_t middle = low + (high - low) / 2;
      if (is_less(first[middle], value)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};
struct UpperBound {
  template <typename I, typename T, typename Less>
  ptrdiff_t operator()(I first, I last, const T& value, Less& is_less) const {
    const auto is_before = [&](const auto& own, const T& wanted) { return !is_less(wanted, own); };
    return LowerBound()(first, last, value, is_before);
  }
};
struct IsThere {
  template <typename I, typename T, typename Less>
  bool operator()(I first, I last, const T& value, Less& is_less) const {
    const ptrdiff_t at = LowerBound()(first, last, value, is_less);
    return at < last - first && !is_less(value, first[at]);
  }
};

template <typename Search, typename I, typename T, typename Less>
inline auto search_one(const char* name, const execution_policy& policy, I first, I last, const T& value,
                       Less is_less) {
  using Result = decltype(Search()(first, last, value, is_less));
  return ask<Result>(
      name, policy,
      [](auto a, auto b, const T& value, Less is_less) { return Search()(a, b, value, is_less); }, first,
      last, value, is_less);
}
template <typename Search, typename I, typename J, typename O, typename Less>
inline O search_many(const char* name, const execution_policy& policy, I first, I last, J values,
                     J values_last, O out, Less is_less) {
  submit(
      name, policy,
      [](auto a, auto b, auto v, auto end, auto o, Less is_less) {
        for (; v != end; ++v, ++o) *o = Search()(a, b, static_cast<Value<J>>(*v), is_less);
      },
      first, last, values, values_last, out, is_less);
  return out + (values_last - values);
}

}  // namespace loom_detail

#define LOOM_THRUST_SEARCH(name, Search, Result, expression)                                                 \
  template <typename I, typename T, typename Less = less<>>                                                  \
  inline Result name(const execution_policy& policy, I first, I last, const T& value, Less is_less = {}) {   \
    const auto found =                                                                                       \
        loom_detail::search_one<loom_detail::Search>("thrust::" #name, policy, first, last, value, is_less); \
    return expression;                                                                                       \
  }                                                                                                          \
  template <typename I, typename J, typename O, typename Less = less<>>                                      \
  inline O name(const execution_policy& policy, I first, I last, J values, J values_last, O out,             \
                Less is_less = {}) {                                                                         \
    return loom_detail::search_many<loom_detail::Search>("thrust::" #name, policy, first, last, values,      \
                                                         values_last, out, is_less);                         \
  }                                                                                                          \
  LOOM_THRUST_FORMS(name)
LOOM_THRUST_SEARCH(lower_bound, LowerBound, I, first + found)
LOOM_THRUST_SEARCH(upper_bound, UpperBound, I, first + found)
LOOM_THRUST_SEARCH(binary_search, IsThere, bool, found)
#undef LOOM_THRUST_SEARCH

template <typename I, typename T, typename Less = less<>>
inline pair<I, I> equal_range(const execution_policy& policy, I first, I last, const T& value,
                              Less is_less = {}) {
  return {::thrust::lower_bound(policy, first, last, value, is_less),
          ::thrust::upper_bound(policy, first, last, value, is_less)};
}
LOOM_THRUST_FORMS(equal_range)

}  // namespace thrust
