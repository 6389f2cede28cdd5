// _1 * 2 + _2: functors that are written as expressions.
#pragma once

#include <tuple>
#include <type_traits>

namespace thrust {
namespace loom_detail {

template <typename F>
struct Expression {
  F f;
  template <typename... A>
  constexpr decltype(auto) operator()(A&&... arguments) const {
    return f(arguments...);
  }
  // Assigns to what the placeholder stands for.
  template <typename B>
  constexpr auto operator=(B b) const;
};
template <typename T>
constexpr bool is_expression = false;
template <typename F>
constexpr bool is_expression<Expression<F>> = true;

template <typename F>
constexpr Expression<F> expression(F f) {
  return {f};
}
template <typename T>
constexpr auto operand(const T& value) {
  if constexpr (is_expression<T>) {
    return value;
  } else {
    return [value](auto&...) { return value; };
  }
}

template <int N>
struct Argument {
  template <typename... A>
  constexpr decltype(auto) operator()(A&... arguments) const {
    return std::get<N>(std::tuple<A&...>(arguments...));
  }
};

template <typename F>
template <typename B>
constexpr auto Expression<F>::operator=(B b) const {
  return expression([a = *this, b = operand(b)](auto&... x) -> decltype(auto) { return a(x...) = b(x...); });
}

#define LOOM_THRUST_BINARY(op)                                                                      \
  template <typename A, typename B>                                                                 \
    requires(is_expression<A> || is_expression<B>)                                                  \
  constexpr auto operator op(const A& a, const B& b) {                                              \
    return expression([a = operand(a), b = operand(b)](auto&... x) { return a(x...) op b(x...); }); \
  }
LOOM_THRUST_BINARY(+)
LOOM_THRUST_BINARY(-)
LOOM_THRUST_BINARY(*)
LOOM_THRUST_BINARY(/)
LOOM_THRUST_BINARY(%)
LOOM_THRUST_BINARY(==)
LOOM_THRUST_BINARY(!=)
LOOM_THRUST_BINARY(<)
LOOM_THRUST_BINARY(<=)
LOOM_THRUST_BINARY(>)
LOOM_THRUST_BINARY(>=)
LOOM_THRUST_BINARY(&&)
LOOM_THRUST_BINARY(||)
LOOM_THRUST_BINARY(&)
LOOM_THRUST_BINARY(|)
LOOM_THRUST_BINARY(^)
LOOM_THRUST_BINARY(<<)
LOOM_THRUST_BINARY(>>)
#undef LOOM_THRUST_BINARY
#define LOOM_THRUST_CHANGE(op)                                                                           \
  template <typename F, typename B>                                                                      \
  constexpr auto operator op(const Expression<F>& a, const B& b) {                                       \
    return expression([a, b = operand(b)](auto&... x) -> decltype(auto) { return a(x...) op b(x...); }); \
  }
LOOM_THRUST_CHANGE(+=)
LOOM_THRUST_CHANGE(-=)
LOOM_THRUST_CHANGE(*=)
LOOM_THRUST_CHANGE(/=)
#undef LOOM_THRUST_CHANGE
#define LOOM_THRUST_UNARY(op)                                  \
  template <typename F>                                        \
  constexpr auto operator op(const Expression<F>& a) {         \
    return expression([a](auto&... x) { return op a(x...); }); \
  }
LOOM_THRUST_UNARY(-)
LOOM_THRUST_UNARY(+)
LOOM_THRUST_UNARY(!)
LOOM_THRUST_UNARY(~)
#undef LOOM_THRUST_UNARY

}  // namespace loom_detail

namespace placeholders {
inline constexpr loom_detail::Expression<loom_detail::Argument<0>> _1{};
inline constexpr loom_detail::Expression<loom_detail::Argument<1>> _2{};
inline constexpr loom_detail::Expression<loom_detail::Argument<2>> _3{};
inline constexpr loom_detail::Expression<loom_detail::Argument<3>> _4{};
inline constexpr loom_detail::Expression<loom_detail::Argument<4>> _5{};
}  // namespace placeholders
}  // namespace thrust
