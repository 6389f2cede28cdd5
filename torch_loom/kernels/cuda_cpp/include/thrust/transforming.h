// Algorithms that compute each value by itself, or move it.
#pragma once

#include "thrust/execution_policy.h"
#include "thrust/functional.h"
#include "thrust/iterator/iterator_traits.h"

namespace thrust {

template <typename I, typename F>
inline I for_each(const execution_policy& policy, I first, I last, F f) {
  loom_detail::submit(
      "thrust::for_each", policy,
      [](auto a, auto b, F f) {
        for (; a != b; ++a) {
          auto&& place = *a;  // which a functor may take by reference
          f(place);
        }
      },
      first, last, f);
  return last;
}
LOOM_THRUST_FORMS(for_each)
template <typename I, typename N, typename F>
inline I for_each_n(const execution_policy& policy, I first, N n, F f) {
  return ::thrust::for_each(policy, first, first + n, f);
}
LOOM_THRUST_FORMS(for_each_n)

template <typename I, typename O, typename F>
inline O transform(const execution_policy& policy, I first, I last, O out, F f) {
  loom_detail::submit(
      "thrust::transform", policy,
      [](auto a, auto b, auto o, F f) {
        for (; a != b; ++a, ++o) *o = f(*a);
      },
      first, last, out, f);
  return out + (last - first);
}
template <typename I, typename J, typename O, typename F>
inline O transform(const execution_policy& policy, I first, I last, J second, O out, F f) {
  loom_detail::submit(
      "thrust::transform", policy,
      [](auto a, auto b, auto c, auto o, F f) {
        for (; a != b; ++a, ++c, ++o) *o = f(*a, *c);
      },
      first, last, second, out, f);
  return out + (last - first);
}
LOOM_THRUST_FORMS(transform)
template <typename I, typename S, typename O, typename F, typename P>
inline O transform_if(const execution_policy& policy, I first, I last, S stencil, O out, F f, P p) {
  loom_detail::submit(
      "thrust::transform_if", policy,
      [](auto a, auto b, auto s, auto o, F f, P p) {
        for (; a != b; ++a, ++s, ++o) {
          if (p(*s)) *o = f(*a);
        }
      },
      first, last, stencil, out, f, p);
  return out + (last - first);
}
template <typename I, typename O, typename F, typename P>
inline O transform_if(const execution_policy& policy, I first, I last, O out, F f, P p) {
  return ::thrust::transform_if(policy, first, last, first, out, f, p);
}
template <typename I, typename J, typename S, typename O, typename F, typename P>
inline O transform_if(const execution_policy& policy, I first, I last, J second, S stencil, O out, F f, P p) {
  loom_detail::submit(
      "thrust::transform_if", policy,
      [](auto a, auto b, auto c, auto s, auto o, F f, P p) {
        for (; a != b; ++a, ++c, ++s, ++o) {
          if (p(*s)) *o = f(*a, *c);
        }
      },
      first, last, second, stencil, out, f, p);
  return out + (last - first);
}
LOOM_THRUST_FORMS(transform_if)

template <typename I, typename T>
inline void fill(const execution_policy& policy, I first, I last, const T& value) {
  loom_detail::submit(
      "thrust::fill", policy,
      [](auto a, auto b, const T& value) {
        for (; a != b; ++a) *a = value;
      },
      first, last, value);
}
LOOM_THRUST_FORMS(fill)
template <typename I, typename N, typename T>
inline I fill_n(const execution_policy& policy, I first, N n, const T& value) {
  ::thrust::fill(policy, first, first + n, value);
  return first + n;
}
LOOM_THRUST_FORMS(fill_n)
template <typename I, typename F>
inline void tabulate(const execution_policy& policy, I first, I last, F f) {
  loom_detail::submit(
      "thrust::tabulate", policy,
      [](auto a, auto b, F f) {
        for (ptrdiff_t i = 0, n = b - a; i < n; ++i) a[i] = f(i);
      },
      first, last, f);
}
LOOM_THRUST_FORMS(tabulate)
template <typename I, typename T = loom_detail::Value<I>, typename Step = T>
inline void sequence(const execution_policy& policy, I first, I last, T start = T(), Step step = Step(1)) {
  loom_detail::submit(
      "thrust::sequence", policy,
      [](auto a, auto b, T start, Step step) {
        for (ptrdiff_t i = 0, n = b - a; i < n; ++i) a[i] = static_cast<T>(start + step * static_cast<T>(i));
      },
      first, last, start, step);
}
LOOM_THRUST_FORMS(sequence)
template <typename I, typename F>
inline void generate(const execution_policy& policy, I first, I last, F f) {
  loom_detail::submit(
      "thrust::generate", policy,
      [](auto a, auto b, F f) {
        for (; a != b; ++a) *a = f();
      },
      first, last, f);
}
LOOM_THRUST_FORMS(generate)
template <typename I, typename N, typename F>
inline I generate_n(const execution_policy& policy, I first, N n, F f) {
  ::thrust::generate(policy, first, first + n, f);
  return first + n;
}
LOOM_THRUST_FORMS(generate_n)

template <typename I, typename O>
inline O copy(const execution_policy& policy, I first, I last, O out) {
  loom_detail::submit(
      "thrust::copy", policy,
      [](auto a, auto b, auto o) {
        for (; a != b; ++a, ++o) *o = static_cast<loom_detail::Value<decltype(a)>>(*a);
      },
      first, last, out);
  return out + std::distance(first, last);
}
LOOM_THRUST_FORMS(copy)
template <typename I, typename N, typename O>
inline O copy_n(const execution_policy& policy, I first, N n, O out) {
  return ::thrust::copy(policy, first, first + n, out);
}
LOOM_THRUST_FORMS(copy_n)
template <typename I, typename J>
inline J swap_ranges(const execution_policy& policy, I first, I last, J second) {
  loom_detail::submit(
      "thrust::swap_ranges", policy,
      [](auto a, auto b, auto c) {
        for (; a != b; ++a, ++c) {
          const loom_detail::Value<decltype(a)> old = *a;
          *a = static_cast<loom_detail::Value<decltype(c)>>(*c);
          *c = old;
        }
      },
      first, last, second);
  return second + (last - first);
}
LOOM_THRUST_FORMS(swap_ranges)
template <typename I>
inline void reverse(const execution_policy& policy, I first, I last) {
  loom_detail::submit(
      "thrust::reverse", policy,
      [](auto a, auto b) {
        for (ptrdiff_t i = 0, j = b - a - 1; i < j; ++i, --j) {
          const loom_detail::Value<decltype(a)> old = a[i];
          a[i] = static_cast<loom_detail::Value<decltype(a)>>(a[j]);
          a[j] = old;
        }
      },
      first, last);
}
LOOM_THRUST_FORMS(reverse)
template <typename I, typename O>
inline O reverse_copy(const execution_policy& policy, I first, I last, O out) {
  loom_detail::submit(
      "thrust::reverse_copy", policy,
      [](auto a, auto b, auto o) {
        for (; a != b; ++o) *o = *--b;
      },
      first, last, out);
  return out + (last - first);
}
LOOM_THRUST_FORMS(reverse_copy)

template <typename M, typename S, typename I, typename O, typename P = identity<>>
inline O gather_if(const execution_policy& policy, M first, M last, S stencil, I in, O out, P p = {}) {
  loom_detail::submit(
      "thrust::gather_if", policy,
      [](auto m, auto end, auto s, auto in, auto o, P p) {
        for (; m != end; ++m, ++s, ++o) {
          if (p(*s)) *o = in[static_cast<ptrdiff_t>(*m)];
        }
      },
      first, last, stencil, in, out, p);
  return out + (last - first);
}
LOOM_THRUST_FORMS(gather_if)
template <typename M, typename I, typename O>
inline O gather(const execution_policy& policy, M first, M last, I in, O out) {
  loom_detail::submit(
      "thrust::gather", policy,
      [](auto m, auto end, auto in, auto o) {
        for (; m != end; ++m, ++o) *o = in[static_cast<ptrdiff_t>(*m)];
      },
      first, last, in, out);
  return out + (last - first);
}
LOOM_THRUST_FORMS(gather)
template <typename I, typename M, typename S, typename O, typename P = identity<>>
inline void scatter_if(const execution_policy& policy, I first, I last, M map, S stencil, O out, P p = {}) {
  loom_detail::submit(
      "thrust::scatter_if", policy,
      [](auto a, auto b, auto m, auto s, auto o, P p) {
        for (; a != b; ++a, ++m, ++s) {
          if (p(*s)) o[static_cast<ptrdiff_t>(*m)] = *a;
        }
      },
      first, last, map, stencil, out, p);
}
LOOM_THRUST_FORMS(scatter_if)
template <typename I, typename M, typename O>
inline void scatter(const execution_policy& policy, I first, I last, M map, O out) {
  loom_detail::submit(
      "thrust::scatter", policy,
      [](auto a, auto b, auto m, auto o) {
        for (; a != b; ++a, ++m) o[static_cast<ptrdiff_t>(*m)] = *a;
      },
      first, last, map, out);
}
LOOM_THRUST_FORMS(scatter)

}  // namespace thrust
