// Algorithms that keep some values, in their order. They return where the kept ones end, and so wait.
#pragma once

#include <vector>

#include "thrust/execution_policy.h"
#include "thrust/functional.h"
#include "thrust/pair.h"

namespace thrust {
namespace loom_detail {

// A std::vector of these is no std::vector<bool>.
template <typename T>
struct Boxed {
  T value;
};

}  // namespace loom_detail

template <typename I, typename S, typename O, typename P>
inline O copy_if(const execution_policy& policy, I first, I last, S stencil, O out, P p) {
  return out + loom_detail::ask<ptrdiff_t>(
                   "thrust::copy_if", policy,
                   [](auto a, auto b, auto s, auto o, P p) {
                     ptrdiff_t count = 0;
                     for (; a != b; ++a, ++s) {
                       if (!p(*s)) continue;
                       *o = static_cast<loom_detail::Value<I>>(*a);
                       ++o, ++count;
                     }
                     return count;
                   },
                   first, last, stencil, out, p);
}
template <typename I, typename O, typename P>
inline O copy_if(const execution_policy& policy, I first, I last, O out, P p) {
  return ::thrust::copy_if(policy, first, last, first, out, p);
}
LOOM_THRUST_FORMS(copy_if)
// The one that is read is behind the one that is written, or the same.
template <typename I, typename S, typename P>
inline I remove_if(const execution_policy& policy, I first, I last, S stencil, P p) {
  return ::thrust::copy_if(policy, first, last, stencil, first, not1(p));
}
template <typename I, typename P>
inline I remove_if(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::copy_if(policy, first, last, first, first, not1(p));
}
LOOM_THRUST_FORMS(remove_if)
template <typename I, typename T>
inline I remove(const execution_policy& policy, I first, I last, T value) {
  return ::thrust::remove_if(policy, first, last, [value](const auto& own) { return own == value; });
}
LOOM_THRUST_FORMS(remove)
template <typename I, typename S, typename O, typename P>
inline O remove_copy_if(const execution_policy& policy, I first, I last, S stencil, O out, P p) {
  return ::thrust::copy_if(policy, first, last, stencil, out, not1(p));
}
template <typename I, typename O, typename P>
inline O remove_copy_if(const execution_policy& policy, I first, I last, O out, P p) {
  return ::thrust::copy_if(policy, first, last, first, out, not1(p));
}
LOOM_THRUST_FORMS(remove_copy_if)
template <typename I, typename O, typename T>
inline O remove_copy(const execution_policy& policy, I first, I last, O out, T value) {
  return ::thrust::remove_copy_if(policy, first, last, out,
                                  [value](const auto& own) { return own == value; });
}
LOOM_THRUST_FORMS(remove_copy)

// --- the first of each run of equal ones ---

template <typename K, typename V, typename KO, typename VO, typename Equal = equal_to<>>
inline pair<KO, VO> unique_by_key_copy(const execution_policy& policy, K keys, K keys_end, V values,
                                       KO keys_out, VO values_out, Equal equal = {}) {
  const auto count = loom_detail::ask<ptrdiff_t>(
      "thrust::unique_by_key", policy,
      [](auto k, auto end, auto v, auto ko, auto vo, Equal equal) {
        const ptrdiff_t n = end - k;
        if (n == 0) return n;
        loom_detail::Value<K> before = k[0];
        ptrdiff_t count = 0;
        for (ptrdiff_t i = 0; i < n; ++i) {
          const loom_detail::Value<K> own = k[i];
          if (i == 0 || !equal(before, own)) {
            vo[count] = static_cast<loom_detail::Value<V>>(v[i]);
            ko[count] = own;
            ++count;
          }
          before = own;
        }
        return count;
      },
      keys, keys_end, values, keys_out, values_out, equal);
  return {keys_out + count, values_out + count};
}
LOOM_THRUST_FORMS(unique_by_key_copy)
template <typename K, typename V, typename Equal = equal_to<>>
inline pair<K, V> unique_by_key(const execution_policy& policy, K keys, K keys_end, V values,
                                Equal equal = {}) {
  return ::thrust::unique_by_key_copy(policy, keys, keys_end, values, keys, values, equal);
}
LOOM_THRUST_FORMS(unique_by_key)
template <typename I, typename O, typename Equal = equal_to<>>
inline O unique_copy(const execution_policy& policy, I first, I last, O out, Equal equal = {}) {
  return out + loom_detail::ask<ptrdiff_t>(
                   "thrust::unique", policy,
                   [](auto a, auto b, auto o, Equal equal) {
                     const ptrdiff_t n = b - a;
                     if (n == 0) return n;
                     loom_detail::Value<I> before = a[0];
                     ptrdiff_t count = 0;
                     for (ptrdiff_t i = 0; i < n; ++i) {
                       const loom_detail::Value<I> own = a[i];
                       if (i == 0 || !equal(before, own)) o[count++] = own;
                       before = own;
                     }
                     return count;
                   },
                   first, last, out, equal);
}
LOOM_THRUST_FORMS(unique_copy)
template <typename I, typename Equal = equal_to<>>
inline I unique(const execution_policy& policy, I first, I last, Equal equal = {}) {
  return ::thrust::unique_copy(policy, first, last, first, equal);
}
LOOM_THRUST_FORMS(unique)
template <typename I, typename Equal = equal_to<>>
inline ptrdiff_t unique_count(const execution_policy& policy, I first, I last, Equal equal = {}) {
  return loom_detail::ask<ptrdiff_t>(
      "thrust::unique_count", policy,
      [](auto a, auto b, Equal equal) {
        const ptrdiff_t n = b - a;
        ptrdiff_t count = n > 0 ? 1 : 0;
        for (ptrdiff_t i = 1; i < n; ++i) count += equal(a[i - 1], a[i]) ? 0 : 1;
        return count;
      },
      first, last, equal);
}
LOOM_THRUST_FORMS(unique_count)
template <typename K, typename V, typename KO, typename VO, typename Equal = equal_to<>, typename Op = plus<>>
inline pair<KO, VO> reduce_by_key(const execution_policy& policy, K keys, K keys_end, V values, KO keys_out,
                                  VO values_out, Equal equal = {}, Op op = {}) {
  const auto count = loom_detail::ask<ptrdiff_t>(
      "thrust::reduce_by_key", policy,
      [](auto k, auto end, auto v, auto ko, auto vo, Equal equal, Op op) {
        const ptrdiff_t n = end - k;
        ptrdiff_t count = 0;
        for (ptrdiff_t i = 0; i < n; ++count) {
          loom_detail::Value<K> key = k[i];
          loom_detail::Value<V> value = v[i];
          ko[count] = key;
          for (++i; i < n; ++i) {
            const loom_detail::Value<K> next = k[i];
            if (!equal(key, next)) break;
            value = op(value, v[i]);
            key = next;
          }
          vo[count] = value;
        }
        return count;
      },
      keys, keys_end, values, keys_out, values_out, equal, op);
  return {keys_out + count, values_out + count};
}
LOOM_THRUST_FORMS(reduce_by_key)

// --- those for which a predicate holds, and then the others; both stay in their order ---

template <typename I, typename S, typename P>
inline I stable_partition(const execution_policy& policy, I first, I last, S stencil, P p) {
  return first + loom_detail::ask<ptrdiff_t>(
                     "thrust::partition", policy,
                     [](auto a, auto b, auto s, P p) {
                       std::vector<loom_detail::Boxed<loom_detail::Value<I>>> others;
                       auto to = a;
                       for (auto from = a; from != b; ++from, ++s) {
                         const bool is_first = p(*s);
                         const loom_detail::Value<I> own = *from;
                         if (!is_first) {
                           others.push_back({own});
                         } else {
                           *to = own;
                           ++to;
                         }
                       }
                       const ptrdiff_t count = to - a;
                       for (const auto& other : others) {
                         *to = other.value;
                         ++to;
                       }
                       return count;
                     },
                     first, last, stencil, p);
}
template <typename I, typename P>
inline I stable_partition(const execution_policy& policy, I first, I last, P p) {
  return ::thrust::stable_partition(policy, first, last, first, p);
}
LOOM_THRUST_FORMS(stable_partition)
template <typename I, typename... A>
inline I partition(const execution_policy& policy, I first, I last, A... arguments) {
  return ::thrust::stable_partition(policy, first, last, arguments...);
}
LOOM_THRUST_FORMS(partition)
template <typename I, typename S, typename O, typename Q, typename P>
inline pair<O, Q> stable_partition_copy(const execution_policy& policy, I first, I last, S stencil, O out,
                                        Q others, P p) {
  const auto count = loom_detail::ask<ptrdiff_t>(
      "thrust::partition_copy", policy,
      [](auto a, auto b, auto s, auto o, auto q, P p) {
        ptrdiff_t count = 0;
        for (; a != b; ++a, ++s) {
          const loom_detail::Value<I> own = *a;
          if (p(*s)) {
            *o = own;
            ++o, ++count;
          } else {
            *q = own;
            ++q;
          }
        }
        return count;
      },
      first, last, stencil, out, others, p);
  return {out + count, others + (last - first - count)};
}
template <typename I, typename O, typename Q, typename P>
inline pair<O, Q> stable_partition_copy(const execution_policy& policy, I first, I last, O out, Q others,
                                        P p) {
  return ::thrust::stable_partition_copy(policy, first, last, first, out, others, p);
}
LOOM_THRUST_FORMS(stable_partition_copy)
template <typename I, typename... A>
inline auto partition_copy(const execution_policy& policy, I first, I last, A... arguments) {
  return ::thrust::stable_partition_copy(policy, first, last, arguments...);
}
LOOM_THRUST_FORMS(partition_copy)

}  // namespace thrust
