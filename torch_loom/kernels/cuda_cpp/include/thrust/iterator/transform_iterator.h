#pragma once
#include <memory>

#include "thrust/iterator/facade.h"

namespace thrust {
namespace loom_detail {

// A functor that lambdas are too: they have no assignment.
template <typename F>
class Held {
 public:
  Held()
    requires std::default_initializable<F>
      : f_() {}
  Held(const F& f) : f_(f) {}
  Held(const Held& other) : f_(other.f_) {}
  Held& operator=(const Held& other) {
    if constexpr (std::is_copy_assignable_v<F>) {
      f_ = other.f_;
    } else if (this != &other) {
      std::destroy_at(&f_);
      std::construct_at(&f_, other.f_);
    }
    return *this;
  }
  F& get() const { return f_; }

 private:
  mutable F f_;
};

template <typename F, typename I>
using Result = std::invoke_result_t<F&, decltype(*std::declval<const I&>())>;

// What transform_output_iterator points at: assigns f(value) there.
template <typename F, typename I>
struct TransformedPlace {
  I at;
  F& f;
  template <typename T>
  const TransformedPlace& operator=(const T& value) const {
    *at = f(value);
    return *this;
  }
};

}  // namespace loom_detail

// f(*base)
template <typename F, typename I, typename Reference = use_default, typename T = use_default>
class transform_iterator
    : public loom_detail::Facade<
          transform_iterator<F, I, Reference, T>,
          loom_detail::Or<T, std::remove_cvref_t<loom_detail::Or<Reference, loom_detail::Result<F, I>>>>,
          loom_detail::Or<Reference, loom_detail::Result<F, I>>> {
 public:
  static constexpr auto kSystem = loom_detail::system_of<I>();
  transform_iterator() = default;
  explicit transform_iterator(const I& base) : base_(base), f_(F()) {}
  transform_iterator(const I& base, const F& f) : base_(base), f_(f) {}
  const I& base() const { return base_; }
  F functor() const { return f_.get(); }
  auto bare() const {
    using Below = loom_detail::Bare<I>;
    return transform_iterator<F, Below, Reference, T>(loom_detail::bare(base_), f_.get());
  }

  typename transform_iterator::reference at() const { return f_.get()(*base_); }
  void by_steps(ptrdiff_t n) { base_ += n; }
  ptrdiff_t steps_from(const transform_iterator& other) const { return base_ - other.base_; }

 private:
  I base_{};
  loom_detail::Held<F> f_;
};
template <typename F, typename I>
inline transform_iterator<F, I> make_transform_iterator(I base, F f) {
  return transform_iterator<F, I>(base, f);
}

// An output: *base = f(value)
template <typename F, typename I>
class transform_output_iterator
    : public loom_detail::Facade<transform_output_iterator<F, I>, loom_detail::Value<I>,
                                 loom_detail::TransformedPlace<F, I>> {
 public:
  static constexpr auto kSystem = loom_detail::system_of<I>();
  transform_output_iterator() = default;
  transform_output_iterator(const I& base, const F& f) : base_(base), f_(f) {}
  const I& base() const { return base_; }
  auto bare() const {
    return transform_output_iterator<F, loom_detail::Bare<I>>(loom_detail::bare(base_), f_.get());
  }

  loom_detail::TransformedPlace<F, I> at() const { return {base_, f_.get()}; }
  void by_steps(ptrdiff_t n) { base_ += n; }
  ptrdiff_t steps_from(const transform_output_iterator& other) const { return base_ - other.base_; }

 private:
  I base_{};
  loom_detail::Held<F> f_;
};
template <typename F, typename I>
inline transform_output_iterator<F, I> make_transform_output_iterator(I base, F f) {
  return transform_output_iterator<F, I>(base, f);
}

}  // namespace thrust
