// thrust::complex: std::complex under a name of its own.
#pragma once

#include <complex>

namespace thrust {

template <typename T>
struct complex : std::complex<T> {
  using value_type = T;
  constexpr complex(T real = T(), T imag = T()) : std::complex<T>(real, imag) {}
  constexpr complex(const std::complex<T>& other) : std::complex<T>(other) {}
  template <typename U>
  explicit constexpr complex(const complex<U>& other)
      : std::complex<T>(static_cast<T>(other.real()), static_cast<T>(other.imag())) {}
};

#define LOOM_CUDA_COMPLEX_UNARY(name)                         \
  template <typename T>                                       \
  inline complex<T> name(const complex<T>& x) {               \
    return std::name(static_cast<const std::complex<T>&>(x)); \
  }
LOOM_CUDA_COMPLEX_UNARY(exp)
LOOM_CUDA_COMPLEX_UNARY(log)
LOOM_CUDA_COMPLEX_UNARY(log10)
LOOM_CUDA_COMPLEX_UNARY(sqrt)
LOOM_CUDA_COMPLEX_UNARY(sin)
LOOM_CUDA_COMPLEX_UNARY(cos)
LOOM_CUDA_COMPLEX_UNARY(tan)
LOOM_CUDA_COMPLEX_UNARY(asin)
LOOM_CUDA_COMPLEX_UNARY(acos)
LOOM_CUDA_COMPLEX_UNARY(atan)
LOOM_CUDA_COMPLEX_UNARY(sinh)
LOOM_CUDA_COMPLEX_UNARY(cosh)
LOOM_CUDA_COMPLEX_UNARY(tanh)
LOOM_CUDA_COMPLEX_UNARY(asinh)
LOOM_CUDA_COMPLEX_UNARY(acosh)
LOOM_CUDA_COMPLEX_UNARY(atanh)
LOOM_CUDA_COMPLEX_UNARY(conj)
LOOM_CUDA_COMPLEX_UNARY(proj)
#undef LOOM_CUDA_COMPLEX_UNARY

#define LOOM_CUDA_COMPLEX_REAL(name)                          \
  template <typename T>                                       \
  inline T name(const complex<T>& x) {                        \
    return std::name(static_cast<const std::complex<T>&>(x)); \
  }
LOOM_CUDA_COMPLEX_REAL(abs)
LOOM_CUDA_COMPLEX_REAL(arg)
LOOM_CUDA_COMPLEX_REAL(norm)
#undef LOOM_CUDA_COMPLEX_REAL

template <typename T>
inline complex<T> polar(const T& r, const T& angle = T()) {
  return std::polar(r, angle);
}
template <typename T>
inline complex<T> pow(const complex<T>& x, const complex<T>& y) {
  return std::pow(static_cast<const std::complex<T>&>(x), static_cast<const std::complex<T>&>(y));
}
template <typename T, typename U>
inline complex<T> pow(const complex<T>& x, const U& y) {
  return std::pow(static_cast<const std::complex<T>&>(x), static_cast<T>(y));
}
template <typename T, typename U>
inline complex<U> pow(const T& x, const complex<U>& y) {
  return std::pow(static_cast<U>(x), static_cast<const std::complex<U>&>(y));
}

}  // namespace thrust
