// Sorting, merging, and what sorted values allow.
#pragma once

#include <algorithm>
#include <vector>

#include "thrust/reducing.h"
#include "thrust/selecting.h"

namespace thrust {

template <typename I, typename Less = less<>>
inline void stable_sort(const execution_policy& policy, I first, I last, Less is_less = {}) {
  loom_detail::submit(
      "thrust::sort", policy,
      [](auto a, auto b, Less is_less) {
        if constexpr (std::is_pointer_v<decltype(a)>) {
          std::stable_sort(a, b, is_less);
        } else {
          // What such an iterator refers to may not be movable as a value.
          using Box = loom_detail::Boxed<loom_detail::Value<I>>;
          std::vector<Box> values;
          for (auto at = a; at != b; ++at) values.push_back({static_cast<loom_detail::Value<I>>(*at)});
          std::stable_sort(values.begin(), values.end(),
                           [&](const Box& x, const Box& y) { return is_less(x.value, y.value); });
          for (const Box& box : values) {
            *a = box.value;
            ++a;
          }
        }
      },
      first, last, is_less);
}
LOOM_THRUST_FORMS(stable_sort)
template <typename I, typename Less = less<>>
inline void sort(const execution_policy& policy, I first, I last, Less is_less = {}) {
  ::thrust::stable_sort(policy, first, last, is_less);
}
LOOM_THRUST_FORMS(sort)
template <typename K, typename V, typename Less = less<>>
inline void stable_sort_by_key(const execution_policy& policy, K first, K last, V values, Less is_less = {}) {
  loom_detail::submit(
      "thrust::sort_by_key", policy,
      [](auto a, auto b, auto v, Less is_less) {
        struct Item {
          loom_detail::Value<K> key;
          loom_detail::Value<V> value;
        };
        std::vector<Item> items;
        const ptrdiff_t n = b - a;
        for (ptrdiff_t i = 0; i < n; ++i) {
          items.push_back(
              {static_cast<loom_detail::Value<K>>(a[i]), static_cast<loom_detail::Value<V>>(v[i])});
        }
        std::stable_sort(items.begin(), items.end(),
                         [&](const Item& x, const Item& y) { return is_less(x.key, y.key); });
        for (ptrdiff_t i = 0; i < n; ++i) {
          a[i] = items[static_cast<size_t>(i)].key;
          v[i] = items[static_cast<size_t>(i)].value;
        }
      },
      first, last, values, is_less);
}
LOOM_THRUST_FORMS(stable_sort_by_key)
template <typename K, typename V, typename Less = less<>>
inline void sort_by_key(const execution_policy& policy, K first, K last, V values, Less is_less = {}) {
  ::thrust::stable_sort_by_key(policy, first, last, values, is_less);
}
LOOM_THRUST_FORMS(sort_by_key)

// --- two sorted ranges; of equal values those of the first one come first ---

template <typename I, typename J, typename V, typename W, typename O, typename VO, typename Less = less<>>
inline pair<O, VO> merge_by_key(const execution_policy& policy, I first, I last, J other, J other_last,
                                V values, W other_values, O out, VO values_out, Less is_less = {}) {
  loom_detail::submit(
      "thrust::merge_by_key", policy,
      [](auto a, auto a_end, auto b, auto b_end, auto v, auto w, auto o, auto vo, Less is_less) {
        for (; a != a_end || b != b_end; ++o, ++vo) {
          if (b == b_end || (a != a_end && !is_less(*b, *a))) {
            *o = *a, *vo = *v;
            ++a, ++v;
          } else {
            *o = *b, *vo = *w;
            ++b, ++w;
          }
        }
      },
      first, last, other, other_last, values, other_values, out, values_out, is_less);
  const ptrdiff_t n = (last - first) + (other_last - other);
  return {out + n, values_out + n};
}
LOOM_THRUST_FORMS(merge_by_key)

namespace loom_detail {

// Which values an operation on sets keeps.
struct Kept {
  bool first, second, both;
  bool is_merge = false;
};
template <typename I, typename J, typename O, typename Less>
inline O combine(const char* name, const execution_policy& policy, Kept kept, I first, I last, J other,
                 J other_last, O out, Less is_less) {
  return out + ask<ptrdiff_t>(
                   name, policy,
                   [](auto a, auto a_end, auto b, auto b_end, auto o, Less is_less, Kept kept) {
                     ptrdiff_t count = 0;
                     const auto give = [&](bool is_kept, auto from) {
                       if (!is_kept) return;
                       *o = *from;
                       ++o, ++count;
                     };
                     while (a != a_end || b != b_end) {
                       if (b == b_end || (a != a_end && is_less(*a, *b))) {
                         give(kept.first, a);
                         ++a;
                       } else if (a == a_end || is_less(*b, *a)) {
                         give(kept.second, b);
                         ++b;
                       } else {
                         give(kept.both, a);
                         ++a;
                         if (!kept.is_merge) ++b;
                       }
                     }
                     return count;
                   },
                   first, last, other, other_last, out, is_less, kept);
}

}  // namespace loom_detail

#define LOOM_THRUST_SETS(name, ...)                                                                    \
  template <typename I, typename J, typename O, typename Less = less<>>                                \
  inline O name(const execution_policy& policy, I first, I last, J other, J other_last, O out,         \
                Less is_less = {}) {                                                                   \
    return loom_detail::combine("thrust::" #name, policy, loom_detail::Kept{__VA_ARGS__}, first, last, \
                                other, other_last, out, is_less);                                      \
  }                                                                                                    \
  LOOM_THRUST_FORMS(name)
LOOM_THRUST_SETS(merge, true, true, true, true)
LOOM_THRUST_SETS(set_union, true, true, true)
LOOM_THRUST_SETS(set_intersection, false, false, true)
LOOM_THRUST_SETS(set_difference, true, false, false)
LOOM_THRUST_SETS(set_symmetric_difference, true, true, false)
#undef LOOM_THRUST_SETS

}  // namespace thrust
