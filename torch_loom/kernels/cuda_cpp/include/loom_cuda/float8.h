// __nv_fp8_e4m3 and __nv_fp8_e5m2, of one to four numbers: storage, and conversions from and to float. What
// is too large becomes the largest number, as their constructors do on a GPU.
#pragma once

#include "loom_cuda/bfloat16.h"
#include "loom_cuda/half.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace loom_cuda {

// Of `bits` bits of mantissa, with the exponent's bias; e4m3 has no infinity and one NaN, e5m2 has IEEE's.
struct Float8 {
  int bits, bias;
  float largest;
  bool is_ieee;

  float wide(unsigned char x) const {
    const unsigned exponent = x >> bits & ((1U << (7 - bits)) - 1), mantissa = x & ((1U << bits) - 1);
    const float sign = x & 0x80 ? -1.0F : 1.0F;
    if (is_ieee && exponent == 31) return mantissa == 0 ? sign * HUGE_VALF : NAN;
    if (!is_ieee && (x & 0x7F) == 0x7F) return NAN;
    if (exponent == 0) return sign * ldexpf(static_cast<float>(mantissa), 1 - bias - bits);
    return sign *
           ldexpf(static_cast<float>(mantissa + (1U << bits)), static_cast<int>(exponent) - bias - bits);
  }

  unsigned char narrow(float value, bool saturates) const {
    const unsigned char sign = signbit(value) ? 0x80 : 0;
    if (value != value) return 0x7F;
    const float magnitude = fabsf(value);
    int exponent = 0;
    if (magnitude != 0) frexpf(magnitude, &exponent);
    const int unit = (exponent - 1 < 1 - bias ? 1 - bias : exponent - 1) - bits;
    const float rounded =
        magnitude == HUGE_VALF ? magnitude : ldexpf(nearbyintf(ldexpf(magnitude, -unit)), unit);
    const unsigned char most = is_ieee ? 0x7B : 0x7E;
    if (rounded > largest) return sign | (saturates ? most : is_ieee ? 0x7C : 0x7F);
    if (rounded == 0) return sign;
    frexpf(rounded, &exponent);
    int field = exponent - 1 + bias;
    if (field < 1) return sign | static_cast<unsigned char>(ldexpf(rounded, bias - 1 + bits));
    const float mantissa = ldexpf(rounded, bits - (exponent - 1)) - static_cast<float>(1 << bits);
    return static_cast<unsigned char>(sign | field << bits | static_cast<int>(mantissa));
  }
};
inline constexpr Float8 kE4M3{3, 7, 448, false}, kE5M2{2, 15, 57344, true};
static inline const Float8& float8(__nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? kE4M3 : kE5M2;
}

}  // namespace loom_cuda

static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s,
                                                       __nv_fp8_interpretation_t k) {
  return loom_cuda::float8(k).narrow(x, s == __NV_SATFINITE);
}
static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s,
                                                            __nv_fp8_interpretation_t k) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(x.x, s, k) | __nv_cvt_float_to_fp8(x.y, s, k)
                                                                                  << 8);
}
static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t s,
                                                        __nv_fp8_interpretation_t k) {
  return __nv_cvt_float_to_fp8(loom_cuda::odd_float(x), s, k);
}
static inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t s,
                                                             __nv_fp8_interpretation_t k) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_fp8(x.x, s, k) |
                                           __nv_cvt_double_to_fp8(x.y, s, k) << 8);
}
static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s,
                                                         __nv_fp8_interpretation_t k) {
  return __nv_cvt_float_to_fp8(__half(x).wide(), s, k);
}
static inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t s,
                                                              __nv_fp8_interpretation_t k) {
  return __nv_cvt_float2_to_fp8x2(__half22float2(x), s, k);
}
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t s,
                                                             __nv_fp8_interpretation_t k) {
  return __nv_cvt_float_to_fp8(__nv_bfloat16(x).wide(), s, k);
}
static inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x, __nv_saturation_t s,
                                                                  __nv_fp8_interpretation_t k) {
  return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(x), s, k);
}
static inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t k) {
  return {loom_cuda::half_of_float(loom_cuda::float8(k).wide(x))};
}
static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t k) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x), k).x,
          __nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x >> 8), k).x};
}

#define LOOM_CUDA_FLOAT8(name, format)                                                                   \
  struct __nv_fp8_##name {                                                                               \
    __nv_fp8_storage_t __x;                                                                              \
    __nv_fp8_##name() = default;                                                                         \
    explicit __nv_fp8_##name(float x) : __x(format.narrow(x, true)) {}                                   \
    explicit __nv_fp8_##name(double x) : __nv_fp8_##name(loom_cuda::odd_float(x)) {}                     \
    explicit __nv_fp8_##name(int x) : __nv_fp8_##name(static_cast<float>(x)) {}                          \
    explicit __nv_fp8_##name(__half x) : __nv_fp8_##name(x.wide()) {}                                    \
    explicit __nv_fp8_##name(__nv_bfloat16 x) : __nv_fp8_##name(x.wide()) {}                             \
    explicit operator float() const { return format.wide(__x); }                                         \
    explicit operator double() const { return format.wide(__x); }                                        \
    explicit operator __half() const { return __half::narrow(format.wide(__x)); }                        \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16::narrow(format.wide(__x)); }          \
  };                                                                                                     \
  struct __attribute__((aligned(2))) __nv_fp8x2_##name {                                                 \
    __nv_fp8x2_storage_t __x;                                                                            \
    __nv_fp8x2_##name() = default;                                                                       \
    explicit __nv_fp8x2_##name(float2 v)                                                                 \
        : __x(static_cast<unsigned short>(format.narrow(v.x, true) | format.narrow(v.y, true) << 8)) {}  \
    explicit operator float2() const {                                                                   \
      return {format.wide(static_cast<unsigned char>(__x)),                                              \
              format.wide(static_cast<unsigned char>(__x >> 8))};                                        \
    }                                                                                                    \
  };                                                                                                     \
  struct __attribute__((aligned(4))) __nv_fp8x4_##name {                                                 \
    __nv_fp8x4_storage_t __x;                                                                            \
    __nv_fp8x4_##name() = default;                                                                       \
    explicit __nv_fp8x4_##name(float4 v)                                                                 \
        : __x(static_cast<unsigned>(format.narrow(v.x, true)) | format.narrow(v.y, true) << 8 |          \
              format.narrow(v.z, true) << 16 | static_cast<unsigned>(format.narrow(v.w, true)) << 24) {} \
    explicit operator float4() const {                                                                   \
      const auto part = [this](int i) { return format.wide(static_cast<unsigned char>(__x >> 8 * i)); }; \
      return {part(0), part(1), part(2), part(3)};                                                       \
    }                                                                                                    \
  };
LOOM_CUDA_FLOAT8(e4m3, loom_cuda::kE4M3)
LOOM_CUDA_FLOAT8(e5m2, loom_cuda::kE5M2)
#undef LOOM_CUDA_FLOAT8

// A power of two in 8 bits, from 2^-127 on; 255 is NaN. The sign is dropped.
namespace loom_cuda {

static inline unsigned char power_of(float x, bool saturates, enum cudaRoundMode mode) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  const unsigned fraction = bits & 0x7FFFFF;
  unsigned exponent = bits >> 23 & 0xFF;
  if (exponent == 255) return fraction == 0 && saturates ? 254 : 255;
  // Below 2^-126 the fraction counts units of 2^-149, of which 2^-127 has 2^22.
  const bool is_above = exponent == 0 ? fraction > 1U << 22 : fraction != 0;
  if (mode == cudaRoundPosInf && is_above) ++exponent;
  return static_cast<unsigned char>(exponent == 255 && saturates ? 254 : exponent);
}
static inline float of_power(unsigned char x) { return x == 255 ? NAN : ldexpf(1, x - 127); }

}  // namespace loom_cuda

static inline __nv_fp8_storage_t __nv_cvt_float_to_e8m0(float x, __nv_saturation_t s,
                                                        enum cudaRoundMode mode) {
  return loom_cuda::power_of(x, s == __NV_SATFINITE, mode);
}
static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_e8m0x2(float2 x, __nv_saturation_t s,
                                                             enum cudaRoundMode mode) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_e8m0(x.x, s, mode) |
                                           __nv_cvt_float_to_e8m0(x.y, s, mode) << 8);
}
static inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x) {
  return {loom_cuda::bfloat16_of_float(loom_cuda::of_power(x))};
}
static inline __nv_bfloat162_raw __nv_cvt_e8m0x2_to_bf162raw(__nv_fp8x2_storage_t x) {
  return {__nv_cvt_e8m0_to_bf16raw(static_cast<unsigned char>(x)).x,
          __nv_cvt_e8m0_to_bf16raw(static_cast<unsigned char>(x >> 8)).x};
}

struct __nv_fp8_e8m0 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e8m0() = default;
  explicit __nv_fp8_e8m0(float x) : __x(loom_cuda::power_of(x, true, cudaRoundPosInf)) {}
  explicit __nv_fp8_e8m0(double x) : __nv_fp8_e8m0(loom_cuda::odd_float(x)) {}
  explicit __nv_fp8_e8m0(__half x) : __nv_fp8_e8m0(x.wide()) {}
  explicit __nv_fp8_e8m0(__nv_bfloat16 x) : __nv_fp8_e8m0(x.wide()) {}
  explicit operator float() const { return loom_cuda::of_power(__x); }
  explicit operator double() const { return loom_cuda::of_power(__x); }
  explicit operator __half() const { return __half::narrow(loom_cuda::of_power(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16::narrow(loom_cuda::of_power(__x)); }
};
