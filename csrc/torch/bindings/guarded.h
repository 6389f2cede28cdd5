// Functions for Python whose C++ exceptions and warnings become Python's, as PyTorch's own do. What
// translates them is compiled once, not into every function.
#pragma once

#include <c10/util/FunctionRef.h>

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace loom::glue {

namespace detail {

void run_guarded(c10::function_ref<void()> body);

template <typename Function>
struct Guard : Guard<decltype(&std::remove_reference_t<Function>::operator())> {};

template <typename Return, typename... Arguments>
struct Guard<Return(Arguments...)> {
  template <typename Function>
  static auto around(Function function) {
    return [function = std::move(function)](Arguments... arguments) -> Return {
      if constexpr (std::is_void_v<Return>) {
        run_guarded([&] { std::invoke(function, std::forward<Arguments>(arguments)...); });
      } else {
        std::optional<Return> result;
        run_guarded([&] { result.emplace(std::invoke(function, std::forward<Arguments>(arguments)...)); });
        return *std::move(result);
      }
    };
  }
};
template <typename Return, typename... Arguments>
struct Guard<Return (*)(Arguments...)> : Guard<Return(Arguments...)> {};
template <typename Return, typename... Arguments>
struct Guard<Return (&)(Arguments...)> : Guard<Return(Arguments...)> {};
// Of a lambda.
template <typename Type, typename Return, typename... Arguments>
struct Guard<Return (Type::*)(Arguments...) const> : Guard<Return(Arguments...)> {};

}  // namespace detail

// A function that pybind11 binds. It returns by value.
template <typename Function>
auto guarded(Function&& function) {
  return detail::Guard<Function>::around(std::forward<Function>(function));
}
// A method.
template <typename Type, typename Return, typename... Arguments>
auto guarded(Return (Type::*method)(Arguments...)) {
  return detail::Guard<Return(Type&, Arguments...)>::around(method);
}
template <typename Type, typename Return, typename... Arguments>
auto guarded(Return (Type::*method)(Arguments...) const) {
  return detail::Guard<Return(const Type&, Arguments...)>::around(method);
}

}  // namespace loom::glue
