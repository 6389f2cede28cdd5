#pragma once
#include "thrust/iterator/facade.h"
#include "thrust/tuple.h"

namespace thrust {

template <typename Iterators>
class zip_iterator;

// A tuple of what each iterator refers to: assigning to it assigns to all.
template <typename... I>
class zip_iterator<tuple<I...>>
    : public loom_detail::Facade<zip_iterator<tuple<I...>>, tuple<loom_detail::Value<I>...>,
                                 tuple<decltype(*std::declval<const I&>())...>> {
 public:
  static constexpr auto kSystem = loom_detail::system_of_all<I...>();
  zip_iterator() = default;
  explicit zip_iterator(const tuple<I...>& iterators) : iterators_(iterators) {}
  explicit zip_iterator(const I&... iterators)
    requires(sizeof...(I) > 1)
      : iterators_(iterators...) {}
  const tuple<I...>& get_iterator_tuple() const { return iterators_; }
  auto bare() const {
    return std::apply(
        [](const I&... i) {
          using Below = tuple<loom_detail::Bare<I>...>;
          return zip_iterator<Below>(Below(loom_detail::bare(i)...));
        },
        iterators_);
  }

  typename zip_iterator::reference at() const {
    return std::apply([](const I&... i) { return typename zip_iterator::reference(*i...); }, iterators_);
  }
  void by_steps(ptrdiff_t n) {
    std::apply([n](I&... i) { ((i += n), ...); }, iterators_);
  }
  ptrdiff_t steps_from(const zip_iterator& other) const {
    return std::get<0>(iterators_) - std::get<0>(other.iterators_);
  }

 private:
  tuple<I...> iterators_;
};
template <typename... I>
inline zip_iterator<tuple<I...>> make_zip_iterator(const tuple<I...>& iterators) {
  return zip_iterator<tuple<I...>>(iterators);
}
template <typename... I>
  requires(sizeof...(I) > 1)
inline zip_iterator<tuple<I...>> make_zip_iterator(I... iterators) {
  return zip_iterator<tuple<I...>>(tuple<I...>(iterators...));
}

}  // namespace thrust
