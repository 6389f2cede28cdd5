// Algorithms that replace some values.
#pragma once

#include "thrust/transforming.h"

namespace thrust {
namespace loom_detail {

template <typename I, typename S, typename O, typename P, typename T>
inline void replace_if(const char* name, const execution_policy& policy, I first, I last, S stencil, O out,
                       P p, T value) {
  submit(
      name, policy,
      [](auto a, auto b, auto s, auto o, P p, T value) {
        for (; a != b; ++a, ++s, ++o) {
          const Value<decltype(a)> own = *a;
          *o = p(*s) ? static_cast<Value<decltype(a)>>(value) : own;
        }
      },
      first, last, stencil, out, p, value);
}
template <typename T>
struct Is {
  T wanted;
  template <typename U>
  bool operator()(const U& value) const {
    return value == wanted;
  }
};

}  // namespace loom_detail

template <typename I, typename S, typename P, typename T>
inline void replace_if(const execution_policy& policy, I first, I last, S stencil, P p, T value) {
  loom_detail::replace_if("thrust::replace_if", policy, first, last, stencil, first, p, value);
}
template <typename I, typename P, typename T>
inline void replace_if(const execution_policy& policy, I first, I last, P p, T value) {
  loom_detail::replace_if("thrust::replace_if", policy, first, last, first, first, p, value);
}
LOOM_THRUST_FORMS(replace_if)
template <typename I, typename T>
inline void replace(const execution_policy& policy, I first, I last, T old, T value) {
  loom_detail::replace_if("thrust::replace", policy, first, last, first, first, loom_detail::Is<T>{old},
                          value);
}
LOOM_THRUST_FORMS(replace)
template <typename I, typename S, typename O, typename P, typename T>
inline O replace_copy_if(const execution_policy& policy, I first, I last, S stencil, O out, P p, T value) {
  loom_detail::replace_if("thrust::replace_copy_if", policy, first, last, stencil, out, p, value);
  return out + (last - first);
}
template <typename I, typename O, typename P, typename T>
inline O replace_copy_if(const execution_policy& policy, I first, I last, O out, P p, T value) {
  return ::thrust::replace_copy_if(policy, first, last, first, out, p, value);
}
LOOM_THRUST_FORMS(replace_copy_if)
template <typename I, typename O, typename T>
inline O replace_copy(const execution_policy& policy, I first, I last, O out, T old, T value) {
  loom_detail::replace_if("thrust::replace_copy", policy, first, last, first, out, loom_detail::Is<T>{old},
                          value);
  return out + (last - first);
}
LOOM_THRUST_FORMS(replace_copy)

}  // namespace thrust
