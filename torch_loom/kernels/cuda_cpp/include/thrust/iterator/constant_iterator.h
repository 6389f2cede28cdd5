#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {

// The same value everywhere.
template <typename T, typename Index = use_default, typename System = use_default>
class constant_iterator : public loom_detail::Facade<constant_iterator<T, Index, System>, T, T> {
 public:
  static constexpr auto kSystem = loom_detail::System::any;
  constant_iterator() = default;
  explicit constant_iterator(const T& value, ptrdiff_t index = 0) : value_(value), index_(index) {}
  const T& value() const { return value_; }
  ptrdiff_t base() const { return index_; }

  T at() const { return value_; }
  void by_steps(ptrdiff_t n) { index_ += n; }
  ptrdiff_t steps_from(const constant_iterator& other) const { return index_ - other.index_; }

 private:
  T value_{};
  ptrdiff_t index_ = 0;
};
template <typename T>
inline constant_iterator<T> make_constant_iterator(T value, ptrdiff_t index = 0) {
  return constant_iterator<T>(value, index);
}

}  // namespace thrust
