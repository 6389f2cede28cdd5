// What iterators share: a class with at(), by_steps() and steps_from() gets all operators of random access.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace thrust {

struct use_default {};

namespace loom_detail {

// Who computes an algorithm that is given no policy: iterators over the host's memory make it the host.
enum class System { any, host, device };
constexpr System common(System a, System b) {
  if (a == System::device || b == System::device) return System::device;
  return a == System::host ? a : b;
}
template <typename A>
constexpr System system_of() {
  if constexpr (requires { A::kSystem; }) {
    return A::kSystem;
  } else if constexpr (std::is_pointer_v<A>) {
    return std::is_object_v<std::remove_pointer_t<A>> ? System::host : System::any;
  } else {
    return std::input_or_output_iterator<A> ? System::host : System::any;
  }
}
template <typename... A>
constexpr System system_of_all() {
  System all = System::any;
  ((all = common(all, system_of<std::remove_cvref_t<A>>())), ...);
  return all;
}

// The same iterator over plain pointers: commands may follow them, the host's code must copy.
template <typename I>
inline auto bare(const I& iterator) {
  if constexpr (requires { iterator.bare(); }) {
    return iterator.bare();
  } else {
    return iterator;
  }
}
template <typename I>
using Bare = decltype(loom_detail::bare(std::declval<const I&>()));

template <typename I>
struct ValueOf {
  using type = std::remove_cvref_t<decltype(*std::declval<I&>())>;
};
template <typename I>
  requires requires { typename std::iterator_traits<I>::value_type; } &&
           (!std::is_void_v<typename std::iterator_traits<I>::value_type>)
struct ValueOf<I> {
  using type = std::remove_cv_t<typename std::iterator_traits<I>::value_type>;
};
template <typename I>
using Value = typename ValueOf<I>::type;
// For outputs that hold nothing, as discard_iterator.
struct Nothing;
template <typename I, typename Other>
using ValueOr = std::conditional_t<std::is_same_v<Value<I>, Nothing>, Other, Value<I>>;

template <typename Given, typename Default>
using Or = std::conditional_t<std::is_same_v<Given, use_default>, Default, Given>;

template <typename Own, typename T, typename Reference>
class Facade {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = ptrdiff_t;
  using reference = Reference;
  using pointer = std::add_pointer_t<std::remove_reference_t<Reference>>;

  Reference operator*() const { return own().at(); }
  template <typename R = Reference>
    requires std::is_lvalue_reference_v<R>
  pointer operator->() const {
    return &own().at();
  }
  template <std::integral N>
  Reference operator[](N n) const {
    return moved(static_cast<ptrdiff_t>(n)).at();
  }
  Own& operator+=(ptrdiff_t n) { return self().by_steps(n), self(); }
  Own& operator-=(ptrdiff_t n) { return self().by_steps(-n), self(); }
  Own& operator++() { return self() += 1; }
  Own& operator--() { return self() -= 1; }
  Own operator++(int) {
    Own old = own();
    return ++*this, old;
  }
  Own operator--(int) {
    Own old = own();
    return --*this, old;
  }
  friend Own operator+(const Own& a, ptrdiff_t n) { return a.moved(n); }
  friend Own operator+(ptrdiff_t n, const Own& a) { return a.moved(n); }
  friend Own operator-(const Own& a, ptrdiff_t n) { return a.moved(-n); }
  friend ptrdiff_t operator-(const Own& a, const Own& b) { return a.steps_from(b); }
  friend bool operator==(const Own& a, const Own& b) { return a.steps_from(b) == 0; }
  friend bool operator!=(const Own& a, const Own& b) { return a.steps_from(b) != 0; }
  friend bool operator<(const Own& a, const Own& b) { return a.steps_from(b) < 0; }
  friend bool operator>(const Own& a, const Own& b) { return a.steps_from(b) > 0; }
  friend bool operator<=(const Own& a, const Own& b) { return a.steps_from(b) <= 0; }
  friend bool operator>=(const Own& a, const Own& b) { return a.steps_from(b) >= 0; }

 private:
  const Own& own() const { return static_cast<const Own&>(*this); }
  Own& self() { return static_cast<Own&>(*this); }
  Own moved(ptrdiff_t n) const {
    Own copy = own();
    copy.by_steps(n);
    return copy;
  }
};

}  // namespace loom_detail
}  // namespace thrust
