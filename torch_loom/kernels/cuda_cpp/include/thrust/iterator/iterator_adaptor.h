#pragma once
#include "thrust/iterator/iterator_facade.h"

namespace thrust {

// For iterators of programs that are another one but for some of these three functions.
template <typename Own, typename Base, typename T = use_default, typename System = use_default,
          typename Traversal = use_default, typename Reference = use_default,
          typename Difference = use_default>
class iterator_adaptor
    : public iterator_facade<Own, loom_detail::Or<T, loom_detail::Value<Base>>, System, Traversal,
                             loom_detail::Or<Reference, decltype(*std::declval<const Base&>())>> {
 public:
  using super_t = iterator_adaptor;
  using base_type = Base;
  static constexpr auto kSystem = loom_detail::system_of<Base>();
  iterator_adaptor() = default;
  explicit iterator_adaptor(const Base& base) : base_(base) {}
  const Base& base() const { return base_; }

 protected:
  Base& base_reference() { return base_; }
  const Base& base_reference() const { return base_; }

 private:
  friend class iterator_core_access;
  typename iterator_adaptor::reference dereference() const { return *base_; }
  void advance(ptrdiff_t n) { base_ += n; }
  ptrdiff_t distance_to(const iterator_adaptor& other) const { return other.base_ - base_; }
  Base base_{};
};

}  // namespace thrust
