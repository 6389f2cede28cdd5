#pragma once
#include "thrust/iterator/facade.h"

namespace thrust {
namespace loom_detail {

struct Nothing {
  Nothing() = default;
  template <typename T>
  Nothing(const T&) {}
  template <typename T>
  Nothing& operator=(const T&) {
    return *this;
  }
};

}  // namespace loom_detail

// An output that keeps nothing.
template <typename System = use_default>
class discard_iterator
    : public loom_detail::Facade<discard_iterator<System>, loom_detail::Nothing, loom_detail::Nothing> {
 public:
  static constexpr auto kSystem = loom_detail::System::any;
  discard_iterator() = default;
  explicit discard_iterator(ptrdiff_t index) : index_(index) {}
  ptrdiff_t base() const { return index_; }

  loom_detail::Nothing at() const { return {}; }
  void by_steps(ptrdiff_t n) { index_ += n; }
  ptrdiff_t steps_from(const discard_iterator& other) const { return index_ - other.index_; }

 private:
  ptrdiff_t index_ = 0;
};
inline discard_iterator<> make_discard_iterator(ptrdiff_t index = 0) { return discard_iterator<>(index); }

}  // namespace thrust
