#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {

template <typename I>
class reverse_iterator : public loom_detail::Facade<reverse_iterator<I>, loom_detail::Value<I>,
                                                    decltype(*std::declval<const I&>())> {
 public:
  static constexpr auto kSystem = loom_detail::system_of<I>();
  reverse_iterator() = default;
  explicit reverse_iterator(I base) : base_(base) {}
  template <typename Other>
    requires std::convertible_to<Other, I>
  reverse_iterator(const reverse_iterator<Other>& other) : base_(other.base()) {}
  const I& base() const { return base_; }
  auto bare() const { return reverse_iterator<loom_detail::Bare<I>>(loom_detail::bare(base_)); }

  typename reverse_iterator::reference at() const {
    I before = base_;
    return *--before;
  }
  void by_steps(ptrdiff_t n) { base_ -= n; }
  ptrdiff_t steps_from(const reverse_iterator& other) const { return other.base_ - base_; }

 private:
  I base_{};
};
template <typename I>
inline reverse_iterator<I> make_reverse_iterator(I base) {
  return reverse_iterator<I>(base);
}

}  // namespace thrust
