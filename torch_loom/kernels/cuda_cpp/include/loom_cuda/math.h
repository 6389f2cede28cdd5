// CUDA's functions of numbers: those that C has not, in float and double, and the approximate ones, which are
// exact to the last bit or two here.
#pragma once

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <type_traits>

#include "loom_cuda/types.h"

// As C's of these names, and without a call: a number wins over NaN.
static inline float loom_cuda_fminf(float a, float b) { return a != a || b < a ? b : a; }
static inline float loom_cuda_fmaxf(float a, float b) { return a != a || a < b ? b : a; }
static inline double loom_cuda_fmin(double a, double b) { return a != a || b < a ? b : a; }
static inline double loom_cuda_fmax(double a, double b) { return a != a || a < b ? b : a; }
namespace std {
using ::loom_cuda_fmaxf;
using ::loom_cuda_fminf;
}  // namespace std
#define fminf loom_cuda_fminf
#define fmaxf loom_cuda_fmaxf

// Not templates, so that they are chosen before those of namespace std.
#define LOOM_CUDA_LEAST(T)                                          \
  static inline constexpr T min(T a, T b) { return b < a ? b : a; } \
  static inline constexpr T max(T a, T b) { return a < b ? b : a; }
LOOM_CUDA_LEAST(int)
LOOM_CUDA_LEAST(unsigned)
LOOM_CUDA_LEAST(long)
LOOM_CUDA_LEAST(unsigned long)
LOOM_CUDA_LEAST(long long)
LOOM_CUDA_LEAST(unsigned long long)
#undef LOOM_CUDA_LEAST
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return loom_cuda_fmin(a, b); }
static inline double max(double a, double b) { return loom_cuda_fmax(a, b); }
template <
    typename A, typename B,
    typename = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
static inline constexpr std::common_type_t<A, B> min(A a, B b) {
  return min(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
}
template <
    typename A, typename B,
    typename = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
static inline constexpr std::common_type_t<A, B> max(A a, B b) {
  return max(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
}
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline long long llmin(long long a, long long b) { return min(a, b); }
static inline long long llmax(long long a, long long b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// f(float), f(double) and, where CUDA has it, ff(float).
#define LOOM_CUDA_MATH(name, expression)                                       \
  static inline double name(double x) { return expression; }                   \
  static inline float name(float x) { return static_cast<float>(expression); } \
  static inline float name##f(float x) { return static_cast<float>(expression); }
LOOM_CUDA_MATH(rsqrt, 1 / std::sqrt(x))
LOOM_CUDA_MATH(rcbrt, 1 / std::cbrt(x))
LOOM_CUDA_MATH(sinpi, ::sin(3.14159265358979323846 * static_cast<double>(x)))
LOOM_CUDA_MATH(cospi, ::cos(3.14159265358979323846 * static_cast<double>(x)))
LOOM_CUDA_MATH(normcdf, 0.5 * ::erfc(-static_cast<double>(x) * 0.70710678118654752440))
LOOM_CUDA_MATH(erfcx, ::exp(static_cast<double>(x) * x) * ::erfc(static_cast<double>(x)))
LOOM_CUDA_MATH(cyl_bessel_i0, std::cyl_bessel_i(0.0, std::fabs(static_cast<double>(x))))
LOOM_CUDA_MATH(cyl_bessel_i1, std::copysign(std::cyl_bessel_i(1.0, std::fabs(static_cast<double>(x))),
                                            static_cast<double>(x)))
#undef LOOM_CUDA_MATH
#ifndef __USE_GNU
static inline double exp10(double x) { return ::pow(10.0, x); }
static inline float exp10f(float x) { return static_cast<float>(::pow(10.0, x)); }
#endif

namespace loom_cuda {
// The inverse of erf by Newton's steps from Winitzki's first guess (2008, "A handy approximation for the
// error function and its inverse").
static inline double inverse_erf(double y) {
  if (!(y > -1 && y < 1)) return y == 1 ? HUGE_VAL : y == -1 ? -HUGE_VAL : NAN;
  const double a = 0.147, l = ::log1p(-y * y), b = 2 / (3.14159265358979323846 * a) + l / 2;
  double x = ::copysign(::sqrt(::sqrt(b * b - l / a) - b), y);
  for (int i = 0; i < 4; ++i) x -= (::erf(x) - y) / (1.12837916709551257390 * ::exp(-x * x));
  return x;
}
}  // namespace loom_cuda
static inline double erfinv(double y) { return loom_cuda::inverse_erf(y); }
static inline float erfinvf(float y) { return static_cast<float>(loom_cuda::inverse_erf(y)); }
static inline double erfcinv(double y) { return loom_cuda::inverse_erf(1 - y); }
static inline float erfcinvf(float y) { return static_cast<float>(loom_cuda::inverse_erf(1.0 - y)); }
static inline double normcdfinv(double y) {
  return 1.41421356237309504880 * loom_cuda::inverse_erf(2 * y - 1);
}
static inline float normcdfinvf(float y) { return static_cast<float>(normcdfinv(y)); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rhypotf(float a, float b) { return 1 / hypotf(a, b); }
static inline double rhypot(double a, double b) { return 1 / hypot(a, b); }
static inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
static inline double norm3d(double a, double b, double c) { return ::sqrt(a * a + b * b + c * c); }
static inline float rnorm3df(float a, float b, float c) { return 1 / norm3df(a, b, c); }
static inline double rnorm3d(double a, double b, double c) { return 1 / norm3d(a, b, c); }
static inline double norm4d(double a, double b, double c, double d) {
  return ::sqrt(a * a + b * b + c * c + d * d);
}
static inline double rnorm4d(double a, double b, double c, double d) { return 1 / norm4d(a, b, c, d); }
static inline float norm4df(float a, float b, float c, float d) {
  return sqrtf(a * a + b * b + c * c + d * d);
}
static inline float rnorm4df(float a, float b, float c, float d) { return 1 / norm4df(a, b, c, d); }
static inline double norm(int n, const double* x) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return ::sqrt(sum);
}
static inline double rnorm(int n, const double* x) { return 1 / norm(n, x); }
static inline float normf(int n, const float* x) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(::sqrt(sum));
}
static inline float rnormf(int n, const float* x) { return 1 / normf(n, x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }

// The C library declares functions of these names, which it does not have.
#define __expf loom_cuda_expf
#define __exp10f loom_cuda_exp10f
#define __logf loom_cuda_logf
#define __log2f loom_cuda_log2f
#define __log10f loom_cuda_log10f
#define __sinf loom_cuda_sinf
#define __cosf loom_cuda_cosf
#define __tanf loom_cuda_tanf
#define __powf loom_cuda_powf
#define __tanhf loom_cuda_tanhf
#define __sincosf loom_cuda_sincosf
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return static_cast<float>(::pow(10.0, x)); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanf(float x) { return tanf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __tanhf(float x) { return tanhf(x); }
static inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
static inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }

// The modes of rounding, by the host's own. `volatile` keeps what is computed between the changes of mode,
// and sums and products from becoming one fused operation.
namespace loom_cuda {
template <int mode>
struct RoundingMode {
  const int before = ::fegetround();
  RoundingMode(const RoundingMode&) = delete;
  RoundingMode() { ::fesetround(mode); }
  ~RoundingMode() { ::fesetround(before); }
};
template <>
struct RoundingMode<FE_TONEAREST> {
  RoundingMode() {}
};
}  // namespace loom_cuda
// Functions of x, of x and y, of x, y and w; `kept` is `volatile` or nothing.
#define LOOM_CUDA_ROUNDED_1(mode, kept, To, name, From, expression) \
  static inline To name(From a) {                                   \
    const loom_cuda::RoundingMode<mode> changed;                    \
    kept From x = a;                                                \
    kept To result = expression;                                    \
    return result;                                                  \
  }
#define LOOM_CUDA_ROUNDED_2(mode, kept, kept_result, T, name, expression) \
  static inline T name(T a, T b) {                                        \
    const loom_cuda::RoundingMode<mode> changed;                          \
    kept T x = a, y = b;                                                  \
    kept_result T result = expression;                                    \
    return result;                                                        \
  }
#define LOOM_CUDA_ROUNDED_3(mode, kept, T, name, expression) \
  static inline T name(T a, T b, T c) {                      \
    const loom_cuda::RoundingMode<mode> changed;             \
    kept T x = a, y = b, w = c, result = expression;         \
    return result;                                           \
  }
#define LOOM_CUDA_ROUNDED(r, mode, kept)                                                             \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, float, __fadd_##r, x + y)                                \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, float, __fsub_##r, x - y)                                \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, float, __fmul_##r, x* y)                                 \
  LOOM_CUDA_ROUNDED_2(mode, kept, kept, float, __fdiv_##r, x / y)                                    \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, double, __dadd_##r, x + y)                               \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, double, __dsub_##r, x - y)                               \
  LOOM_CUDA_ROUNDED_2(mode, kept, volatile, double, __dmul_##r, x* y)                                \
  LOOM_CUDA_ROUNDED_2(mode, kept, kept, double, __ddiv_##r, x / y)                                   \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __frcp_##r, float, 1 / x)                                   \
  LOOM_CUDA_ROUNDED_1(mode, kept, double, __drcp_##r, double, 1 / x)                                 \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __fsqrt_##r, float, sqrtf(x))                               \
  LOOM_CUDA_ROUNDED_1(mode, kept, double, __dsqrt_##r, double, ::sqrt(x))                            \
  LOOM_CUDA_ROUNDED_3(mode, kept, float, __fmaf_##r, fmaf(x, y, w))                                  \
  LOOM_CUDA_ROUNDED_3(mode, kept, float, fmaf_##r, fmaf(x, y, w))                                    \
  LOOM_CUDA_ROUNDED_3(mode, kept, float, __fmaf_ieee_##r, fmaf(x, y, w))                             \
  LOOM_CUDA_ROUNDED_3(mode, kept, double, __fma_##r, ::fma(x, y, w))                                 \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __double2float_##r, double, static_cast<float>(x))          \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __int2float_##r, int, static_cast<float>(x))                \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __uint2float_##r, unsigned, static_cast<float>(x))          \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __ll2float_##r, long long, static_cast<float>(x))           \
  LOOM_CUDA_ROUNDED_1(mode, kept, float, __ull2float_##r, unsigned long long, static_cast<float>(x)) \
  LOOM_CUDA_ROUNDED_1(mode, kept, double, __ll2double_##r, long long, static_cast<double>(x))        \
  LOOM_CUDA_ROUNDED_1(mode, kept, double, __ull2double_##r, unsigned long long, static_cast<double>(x))
LOOM_CUDA_ROUNDED(rn, FE_TONEAREST, )
LOOM_CUDA_ROUNDED(rz, FE_TOWARDZERO, volatile)
LOOM_CUDA_ROUNDED(ru, FE_UPWARD, volatile)
LOOM_CUDA_ROUNDED(rd, FE_DOWNWARD, volatile)
#undef LOOM_CUDA_ROUNDED
#undef LOOM_CUDA_ROUNDED_3
#undef LOOM_CUDA_ROUNDED_2
#undef LOOM_CUDA_ROUNDED_1
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }

namespace loom_cuda {
// As a GPU converts: what does not fit becomes the nearest number that does, NaN becomes 0.
template <typename T>
static inline T whole(double x) {
  if (x != x) return 0;
  constexpr int bits = sizeof(T) * 8 - std::is_signed_v<T>;
  if (x >= ::ldexp(1.0, bits))
    return std::is_signed_v<T> ? static_cast<T>(~(~static_cast<std::make_unsigned_t<T>>(0) << bits))
                               : static_cast<T>(~T(0));
  if (x <= (std::is_signed_v<T> ? -::ldexp(1.0, bits) : -0.0))
    return std::is_signed_v<T> ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(1) << bits) : T(0);
  return static_cast<T>(x);
}
}  // namespace loom_cuda
#define LOOM_CUDA_TO_WHOLE(name, From, T)                                           \
  static inline T name##_rn(From x) { return loom_cuda::whole<T>(::nearbyint(x)); } \
  static inline T name##_rz(From x) { return loom_cuda::whole<T>(::trunc(x)); }     \
  static inline T name##_ru(From x) { return loom_cuda::whole<T>(::ceil(x)); }      \
  static inline T name##_rd(From x) { return loom_cuda::whole<T>(::floor(x)); }
LOOM_CUDA_TO_WHOLE(__float2int, float, int)
LOOM_CUDA_TO_WHOLE(__float2uint, float, unsigned)
LOOM_CUDA_TO_WHOLE(__float2ll, float, long long)
LOOM_CUDA_TO_WHOLE(__float2ull, float, unsigned long long)
LOOM_CUDA_TO_WHOLE(__double2int, double, int)
LOOM_CUDA_TO_WHOLE(__double2uint, double, unsigned)
LOOM_CUDA_TO_WHOLE(__double2ll, double, long long)
LOOM_CUDA_TO_WHOLE(__double2ull, double, unsigned long long)
#undef LOOM_CUDA_TO_WHOLE

#define LOOM_CUDA_BITS(name, From, To) \
  static inline To name(From x) {      \
    To bits;                           \
    memcpy(&bits, &x, sizeof(To));     \
    return bits;                       \
  }
LOOM_CUDA_BITS(__float_as_int, float, int)
LOOM_CUDA_BITS(__float_as_uint, float, unsigned)
LOOM_CUDA_BITS(__int_as_float, int, float)
LOOM_CUDA_BITS(__uint_as_float, unsigned, float)
LOOM_CUDA_BITS(__double_as_longlong, double, long long)
LOOM_CUDA_BITS(__longlong_as_double, long long, double)
#undef LOOM_CUDA_BITS
static inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
static inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(high) << 32 | static_cast<unsigned>(low));
}
