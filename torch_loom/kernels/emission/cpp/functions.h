// Functions of kernels. Those of float without branches become vector instructions; the others are the C
// library's.
#pragma once

#include "numbers.h"

namespace loom {

// Whole numbers. A GPU does not stop at a division by zero; quotient and remainder have all bits set.
template <typename T>
inline T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<uint64_t>(a));
  return static_cast<T>(a / b);
}
template <typename T>
inline T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <typename T>
inline T floor_quotient(T a, T b) {
  const T q = quotient(a, b);
  return static_cast<T>(q - (b != 0 && remainder(a, b) != 0 && (a < 0) != (b < 0)));
}
template <typename T>
inline T shifted_left(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return static_cast<U>(b) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(a) << b) : T{0};
}
template <typename T>
inline T shifted_right(T a, T b) {  // of the type's sign
  using U = std::make_unsigned_t<T>;
  const T last = sizeof(T) * 8 - 1;
  return static_cast<T>(a >> (static_cast<U>(b) < sizeof(T) * 8 ? b : last));
}
template <typename T>
inline T shifted_right_unsigned(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return static_cast<U>(b) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(a) >> b) : T{0};
}
inline uint32_t high_product(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
inline uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

// Of floats: the number if one operand is NaN, or NaN.
template <typename T>
inline T max_number(T a, T b) {
  return a != a ? b : (b > a ? b : a);
}
template <typename T>
inline T min_number(T a, T b) {
  return a != a ? b : (b < a ? b : a);
}
template <typename T>
inline T max_or_nan(T a, T b) {
  return a != a ? a : (b <= a ? a : b);
}
template <typename T>
inline T min_or_nan(T a, T b) {
  return a != a ? a : (b >= a ? a : b);
}

// 2^whole * e^rest, for |rest| <= 0.35 and a whole number from -126 to 129. The series up to rest^6, whose rest
// is 1.2e-7 at the ends.
inline float scaled_exp(float whole, float rest) {
  float p = 1.3980e-3f;
  p = p * rest + 8.3335e-3f;
  p = p * rest + 4.1666667e-2f;
  p = p * rest + 1.6666667e-1f;
  p = p * rest + 0.5f;
  p = p * rest + 1.f;
  p = p * rest + 1.f;
  // Of large powers half, and twice the series: 2^128 is no float, and neither is half of 2^-126.
  const bool is_large = whole > 0.f;
  const int32_t exponent = static_cast<int32_t>(whole) + (is_large ? 126 : 127);
  return (is_large ? p + p : p) * bits_as<float>(exponent << 23);
}

// Subnormal results become zero, as on a GPU.
inline float exp2(float x) {
  float kept = x > 129.f ? 129.f : x;
  kept = kept < -126.f ? -126.f : kept;
  const float whole = rintf(kept);
  const float power = scaled_exp(whole, (kept - whole) * 0.693147181f);
  return x < -126.f ? 0.f : power;
}
inline float exp(float x) {
  float kept = x > 89.f ? 89.f : x;
  kept = kept < -87.33654f ? -87.33654f : kept;
  const float whole = rintf(kept * 1.44269504f);
  const float power = scaled_exp(whole, (kept - whole * 0.693145752f) - whole * 1.42860677e-6f);
  return x < -87.33654f ? 0.f : power;
}

// The logarithm of a mantissa in [sqrt(1/2), sqrt(2)), and the exponent.
struct Logarithm {
  float of_mantissa, exponent;
};
inline Logarithm logarithm(float x) {
  const bool is_small = x < 1.17549435e-38f;
  const uint32_t bits = bits_as<uint32_t>(is_small ? x * 0x1p25f : x);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = bits_as<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.f;
  const float s = m / (2.f + m), z = s * s;
  float p = 0.111111111f;
  p = p * z + 0.142857143f;
  p = p * z + 0.2f;
  p = p * z + 0.333333333f;
  return {2.f * s + 2.f * s * z * p, static_cast<float>(exponent) - (is_small ? 25.f : 0.f)};
}
inline float log_of_special(float x, float result) {
  result = x == 0.f ? -INFINITY : result;
  result = x < 0.f ? NAN : result;
  return x != x || x == INFINITY ? x : result;
}
inline float log(float x) {
  const Logarithm l = logarithm(x);
  return log_of_special(x, l.exponent * 0.693145752f + (l.exponent * 1.42860677e-6f + l.of_mantissa));
}
inline float log2(float x) {
  const Logarithm l = logarithm(x);
  return log_of_special(x, l.exponent + l.of_mantissa * 1.44269504f);
}
inline double exp(double x) { return ::exp(x); }
inline double exp2(double x) { return ::exp2(x); }
inline double log(double x) { return ::log(x); }
inline double log2(double x) { return ::log2(x); }

inline float rsqrt(float x) { return 1.f / sqrtf(x); }
inline double rsqrt(double x) { return 1. / sqrt(x); }

inline float tanh(float x) {
  const float magnitude = fabsf(x);
  const float e = exp(2.f * (magnitude < 10.f ? magnitude : 10.f));
  const float far = 1.f - 2.f / (e + 1.f);
  const float z = x * x;
  // The series near zero, where the difference would cancel.
  const float near =
      magnitude * (1.f + z * (-0.333333333f + z * (0.133333333f + z * (-0.0539682540f + z * 0.0218694885f))));
  return copysignf(magnitude < 0.25f ? near : far, x) + (x != x ? x : 0.f);
}
inline double tanh(double x) { return ::tanh(x); }

// Without branches the error is below 1.5e-7 (Abramowitz and Stegun, 7.1.26, is 2e-7; this is the C
// library's).
inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

#define LOOM_OF_C(name)                               \
  inline float name(float x) { return ::name##f(x); } \
  inline double name(double x) { return ::name(x); }
LOOM_OF_C(sin)
LOOM_OF_C(cos)
LOOM_OF_C(tan) LOOM_OF_C(asin) LOOM_OF_C(acos) LOOM_OF_C(atan) LOOM_OF_C(sinh) LOOM_OF_C(cosh)
    LOOM_OF_C(asinh) LOOM_OF_C(acosh) LOOM_OF_C(atanh) LOOM_OF_C(exp10) LOOM_OF_C(expm1) LOOM_OF_C(log10)
        LOOM_OF_C(log1p) LOOM_OF_C(cbrt) LOOM_OF_C(erfc) LOOM_OF_C(lgamma) LOOM_OF_C(tgamma) LOOM_OF_C(j0)
            LOOM_OF_C(j1) LOOM_OF_C(y0) LOOM_OF_C(y1) LOOM_OF_C(sqrt) LOOM_OF_C(floor) LOOM_OF_C(ceil)
                LOOM_OF_C(trunc) LOOM_OF_C(rint) LOOM_OF_C(nearbyint) LOOM_OF_C(round) LOOM_OF_C(fabs)
                    LOOM_OF_C(logb)
#undef LOOM_OF_C
#define LOOM_OF_C(name)                                           \
  inline float name(float x, float y) { return ::name##f(x, y); } \
  inline double name(double x, double y) { return ::name(x, y); }
                        LOOM_OF_C(pow) LOOM_OF_C(fmod) LOOM_OF_C(atan2) LOOM_OF_C(hypot) LOOM_OF_C(copysign)
                            LOOM_OF_C(nextafter) LOOM_OF_C(fdim) LOOM_OF_C(fmax) LOOM_OF_C(fmin)
                                LOOM_OF_C(remainder)
#undef LOOM_OF_C
                                    inline float fma(float x, float y, float z) {
  return ::fmaf(x, y, z);
}
inline double fma(double x, double y, double z) { return ::fma(x, y, z); }

template <typename T>
inline T pow_whole(T x, int32_t n) {
  return static_cast<T>(std::pow(x, n));
}
inline float erfinv_start(float x) {
  const float w = logf((1.f - x) * (1.f + x)), a = 4.33074675f + 0.5f * w;
  return copysignf(sqrtf(sqrtf(a * a - w / 0.147f) - a), x);
}
template <typename T>
inline T erfinv(T x) {
  if (!(x > -1 && x < 1)) return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
  double y = erfinv_start(static_cast<float>(x));
  for (int i = 0; i < 4; ++i) y -= (::erf(y) - x) / (1.1283791670955126 * ::exp(-y * y));
  return static_cast<T>(y);
}

}  // namespace loom
