#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {

using std::iterator_traits;
using random_access_traversal_tag = std::random_access_iterator_tag;
using random_access_device_iterator_tag = std::random_access_iterator_tag;
using random_access_host_iterator_tag = std::random_access_iterator_tag;
using std::bidirectional_iterator_tag;
using std::forward_iterator_tag;
using std::input_iterator_tag;
using std::output_iterator_tag;
using std::random_access_iterator_tag;

template <typename I>
struct iterator_value : loom_detail::ValueOf<I> {};
template <typename I>
struct iterator_difference {
  using type = typename std::iterator_traits<I>::difference_type;
};
template <typename I>
struct iterator_reference {
  using type = typename std::iterator_traits<I>::reference;
};
template <typename I>
struct iterator_pointer {
  using type = typename std::iterator_traits<I>::pointer;
};
template <typename I>
using iterator_value_t = typename iterator_value<I>::type;
template <typename I>
using iterator_difference_t = typename iterator_difference<I>::type;
template <typename I>
using iterator_reference_t = typename iterator_reference<I>::type;

template <typename I>
inline ptrdiff_t distance(I first, I last) {
  return std::distance(first, last);
}
template <typename I, typename N>
inline void advance(I& at, N n) {
  std::advance(at, n);
}
template <typename I>
inline I next(I at, ptrdiff_t n = 1) {
  return at + n;
}
template <typename I>
inline I prev(I at, ptrdiff_t n = 1) {
  return at - n;
}

}  // namespace thrust
