#pragma once

#include <functional>

#include "thrust/placeholders.h"

namespace thrust {

template <typename T = void>
using plus = std::plus<T>;
template <typename T = void>
using minus = std::minus<T>;
template <typename T = void>
using multiplies = std::multiplies<T>;
template <typename T = void>
using divides = std::divides<T>;
template <typename T = void>
using modulus = std::modulus<T>;
template <typename T = void>
using negate = std::negate<T>;
template <typename T = void>
using equal_to = std::equal_to<T>;
template <typename T = void>
using not_equal_to = std::not_equal_to<T>;
template <typename T = void>
using less = std::less<T>;
template <typename T = void>
using less_equal = std::less_equal<T>;
template <typename T = void>
using greater = std::greater<T>;
template <typename T = void>
using greater_equal = std::greater_equal<T>;
template <typename T = void>
using logical_and = std::logical_and<T>;
template <typename T = void>
using logical_or = std::logical_or<T>;
template <typename T = void>
using logical_not = std::logical_not<T>;
template <typename T = void>
using bit_and = std::bit_and<T>;
template <typename T = void>
using bit_or = std::bit_or<T>;
template <typename T = void>
using bit_xor = std::bit_xor<T>;

#define LOOM_THRUST_FUNCTOR(name, parameters, expression)          \
  template <typename T = void>                                     \
  struct name {                                                    \
    using result_type = T;                                         \
    constexpr T operator() parameters const { return expression; } \
  };                                                               \
  template <>                                                      \
  struct name<void> {                                              \
    template <typename T>                                          \
    constexpr T operator() parameters const {                      \
      return expression;                                           \
    }                                                              \
  };
LOOM_THRUST_FUNCTOR(maximum, (const T& a, const T& b), a < b ? b : a)
LOOM_THRUST_FUNCTOR(minimum, (const T& a, const T& b), b < a ? b : a)
LOOM_THRUST_FUNCTOR(square, (const T& a), static_cast<T>(a* a))
LOOM_THRUST_FUNCTOR(identity, (const T& a), a)
#undef LOOM_THRUST_FUNCTOR

template <typename A = void, typename B = void>
struct project1st {
  template <typename First, typename Second>
  constexpr First operator()(const First& first, const Second&) const {
    return first;
  }
};
template <typename A = void, typename B = void>
struct project2nd {
  template <typename First, typename Second>
  constexpr Second operator()(const First&, const Second& second) const {
    return second;
  }
};

template <typename Predicate>
struct unary_negate {
  Predicate predicate;
  template <typename T>
  constexpr bool operator()(const T& value) const {
    return !predicate(value);
  }
};
template <typename Predicate>
struct binary_negate {
  Predicate predicate;
  template <typename A, typename B>
  constexpr bool operator()(const A& a, const B& b) const {
    return !predicate(a, b);
  }
};
template <typename Predicate>
inline unary_negate<Predicate> not1(Predicate predicate) {
  return {predicate};
}
template <typename Predicate>
inline binary_negate<Predicate> not2(Predicate predicate) {
  return {predicate};
}
using std::not_fn;

// What programs derive their functors from.
template <typename Argument, typename Result>
struct unary_function {
  using argument_type = Argument;
  using result_type = Result;
};
template <typename First, typename Second, typename Result>
struct binary_function {
  using first_argument_type = First;
  using second_argument_type = Second;
  using result_type = Result;
};

}  // namespace thrust
