// Quotients of whole numbers. Many of libcu++'s headers bring them, and programs count on it.
#pragma once

namespace cuda {

template <typename A, typename B>
constexpr auto ceil_div(A a, B b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
template <typename A, typename B>
constexpr auto round_up(A a, B b) {
  return ::cuda::ceil_div(a, b) * b;
}
template <typename A, typename B>
constexpr auto round_down(A a, B b) {
  return a / b * b;
}

}  // namespace cuda
