#pragma once
#include "thrust/iterator/iterator_traits.h"

namespace thrust {

// How facades reach what an iterator keeps private.
class iterator_core_access {
 public:
  template <typename I>
  static decltype(auto) dereference(const I& i) {
    return i.dereference();
  }
  template <typename I>
  static void advance(I& i, ptrdiff_t n) {
    i.advance(n);
  }
  template <typename I>
  static ptrdiff_t distance_to(const I& from, const I& to) {
    return from.distance_to(to);
  }
};

// For iterators of programs: dereference(), advance(n) and distance_to(other).
template <typename Own, typename T, typename System, typename Traversal, typename Reference,
          typename Difference = ptrdiff_t>
class iterator_facade : public loom_detail::Facade<Own, T, Reference> {
 public:
  Reference at() const { return iterator_core_access::dereference(static_cast<const Own&>(*this)); }
  void by_steps(ptrdiff_t n) { iterator_core_access::advance(static_cast<Own&>(*this), n); }
  ptrdiff_t steps_from(const Own& other) const {
    return iterator_core_access::distance_to(other, static_cast<const Own&>(*this));
  }
};

}  // namespace thrust
