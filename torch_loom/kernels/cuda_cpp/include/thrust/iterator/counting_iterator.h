#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {

// start, start + 1, ...
template <typename T, typename System = use_default, typename Traversal = use_default,
          typename Difference = use_default>
class counting_iterator
    : public loom_detail::Facade<counting_iterator<T, System, Traversal, Difference>, T, T> {
 public:
  static constexpr auto kSystem = loom_detail::System::any;
  counting_iterator() = default;
  explicit counting_iterator(T start) : at_(start) {}
  T base() const { return at_; }

  T at() const { return at_; }
  void by_steps(ptrdiff_t n) { at_ = static_cast<T>(at_ + n); }
  ptrdiff_t steps_from(const counting_iterator& other) const {
    return static_cast<ptrdiff_t>(at_) - static_cast<ptrdiff_t>(other.at_);
  }

 private:
  T at_{};
};
template <typename T>
inline counting_iterator<T> make_counting_iterator(T start) {
  return counting_iterator<T>(start);
}

}  // namespace thrust
