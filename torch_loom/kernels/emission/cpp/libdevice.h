// Functions of NVIDIA's library that few kernels call.
#pragma once

#include "functions.h"

namespace loom {

// Computes with another mode of rounding: bits 10 and 11 of the processor's register say which.
template <typename Function, typename... Arguments>
__attribute__((noinline)) auto rounded_as(unsigned mode, Function function, Arguments... arguments) {
#ifdef __x86_64__
  unsigned before;
  __asm__ volatile("stmxcsr %0" : "=m"(before) : : "memory");
  const unsigned changed = (before & ~0x6000u) | mode << 3;
  __asm__ volatile("ldmxcsr %0" : : "m"(changed) : "memory");
  (..., [&] { __asm__ volatile("" : "+m"(arguments) : : "memory"); }());
  auto result = function(arguments...);
  __asm__ volatile("" : "+m"(result) : : "memory");
  __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
  return result;
#else
  return function(arguments...);
#endif
}

template <typename U>
inline U reversed(U bits) {
  U result = 0;
  for (unsigned i = 0; i < sizeof(U) * 8; ++i) result |= (bits >> i & 1) << (sizeof(U) * 8 - 1 - i);
  return result;
}
// Each digit of `chosen` names a byte of the two words.
inline uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t chosen) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= (static_cast<uint32_t>(both >> ((chosen >> (i * 4) & 7u) * 8)) & 0xffu) << (i * 8);
  return result;
}

#define LOOM_BESSEL(name)                                           \
  inline float name(int32_t n, float x) { return ::name##f(n, x); } \
  inline double name(int32_t n, double x) { return ::name(n, x); }
LOOM_BESSEL(jn)
LOOM_BESSEL(yn)
#undef LOOM_BESSEL

// Modified Bessel functions of the first kind: the series, whose terms are positive, and for large arguments
// the asymptotic one (Abramowitz and Stegun, 9.6.10 and 9.7.1).
inline double modified_bessel(int order, double x) {
  const double magnitude = ::fabs(x);
  double sum, term;
  if (magnitude < 30) {
    term = order == 0 ? 1 : magnitude / 2;
    sum = term;
    for (int k = 1; k < 100 && term > sum * 1e-18; ++k)
      sum += term *= magnitude * magnitude / 4 / (double(k) * (k + order));
  } else {
    term = sum = 1;
    for (int k = 1; k < 30; ++k)
      sum += term *= -(4. * order * order - (2. * k - 1) * (2. * k - 1)) / (k * 8. * magnitude);
    sum *= ::exp(magnitude) / ::sqrt(2 * 3.14159265358979324 * magnitude);
  }
  return order == 1 && x < 0 ? -sum : sum;
}
template <typename T>
inline T cyl_bessel_i0(T x) {
  return static_cast<T>(modified_bessel(0, x));
}
template <typename T>
inline T cyl_bessel_i1(T x) {
  return static_cast<T>(modified_bessel(1, x));
}

// The point with this much of the normal distribution below it: from a first guess (Abramowitz and Stegun,
// 26.2.23), by Newton's steps of third order.
inline double normal_quantile(double p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
  const double small = p < 0.5 ? p : 1 - p;
  const double t = ::sqrt(-2 * ::log(small));
  double x = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int i = 0; i < 3; ++i) {
    const double error = 0.5 * ::erfc(-x * 0.70710678118654752) - small;
    const double step = error * 2.50662827463100050 * ::exp(x * x / 2);
    x -= step / (1 + x * step / 2);
  }
  return p < 0.5 ? x : -x;
}
template <typename T>
inline T normcdfinv(T p) {
  return static_cast<T>(normal_quantile(p));
}
template <typename T>
inline T erfcinv(T y) {
  return static_cast<T>(normal_quantile(double(y) / 2) * -0.70710678118654752);
}
template <typename T>
inline T norm3d(T x, T y, T z) {
  return static_cast<T>(::hypot(::hypot(double(x), double(y)), double(z)));
}
template <typename T>
inline T norm4d(T x, T y, T z, T w) {
  return static_cast<T>(::hypot(::hypot(double(x), double(y)), ::hypot(double(z), double(w))));
}

}  // namespace loom
