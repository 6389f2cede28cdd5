#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {

// elements[*indices]
template <typename Elements, typename Indices>
class permutation_iterator
    : public loom_detail::Facade<permutation_iterator<Elements, Indices>, loom_detail::Value<Elements>,
                                 decltype(*std::declval<const Elements&>())> {
 public:
  static constexpr auto kSystem = loom_detail::system_of_all<Elements, Indices>();
  permutation_iterator() = default;
  permutation_iterator(Elements elements, Indices indices) : elements_(elements), indices_(indices) {}
  const Indices& base() const { return indices_; }
  auto bare() const {
    return permutation_iterator<loom_detail::Bare<Elements>, loom_detail::Bare<Indices>>(
        loom_detail::bare(elements_), loom_detail::bare(indices_));
  }

  typename permutation_iterator::reference at() const {
    return *(elements_ + static_cast<ptrdiff_t>(static_cast<loom_detail::Value<Indices>>(*indices_)));
  }
  void by_steps(ptrdiff_t n) { indices_ += n; }
  ptrdiff_t steps_from(const permutation_iterator& other) const { return indices_ - other.indices_; }

 private:
  Elements elements_{};
  Indices indices_{};
};
template <typename Elements, typename Indices>
inline permutation_iterator<Elements, Indices> make_permutation_iterator(Elements elements, Indices indices) {
  return permutation_iterator<Elements, Indices>(elements, indices);
}

}  // namespace thrust
