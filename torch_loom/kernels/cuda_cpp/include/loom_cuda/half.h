// __half and __half2: IEEE's 16 bits. Arithmetic is computed in float and rounded once to nearest, even.
#pragma once

#include "loom_cuda/half_bits.h"
#include "loom_cuda/small_floats.h"

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x, y;
};

struct __attribute__((aligned(2))) __half {
  unsigned short __x;

  __half() = default;
  __half(const __half_raw& raw) : __x(raw.x) {}
  static __half narrow(float value) { return __half_raw{loom_cuda::half_of_float(value)}; }
  float wide() const { return loom_cuda::float_of_half(__x); }
  operator __half_raw() const { return {__x}; }
#ifndef __CUDA_NO_HALF_CONVERSIONS__
  __half(float value) : __x(loom_cuda::half_of_float(value)) {}
  __half(double value) : __half(loom_cuda::odd_float(value)) {}
  __half(int value) : __half(static_cast<float>(value)) {}
  __half(unsigned value) : __half(static_cast<float>(value)) {}
  __half(short value) : __half(static_cast<float>(value)) {}
  __half(unsigned short value) : __half(static_cast<float>(value)) {}
  __half(long value) : __half(static_cast<float>(value)) {}
  __half(unsigned long value) : __half(static_cast<float>(value)) {}
  __half(long long value) : __half(static_cast<float>(value)) {}
  __half(unsigned long long value) : __half(static_cast<float>(value)) {}
  operator float() const { return wide(); }
  explicit operator bool() const { return (__x & 0x7FFF) != 0; }
#endif
};

struct __attribute__((aligned(4))) __half2 {
  __half x, y;
  __half2() = default;
  __half2(const __half& x, const __half& y) : x(x), y(y) {}
  __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
};
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

LOOM_CUDA_SMALL_FUNCTIONS(__half, __half2)
LOOM_CUDA_SMALL_COMPARISONS(__half, __half2)
LOOM_CUDA_SMALL_CLAMPED(__half, __half2)
LOOM_CUDA_SMALL_WHOLES(__half, half)
#ifndef __CUDA_NO_HALF_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS(__half)
#endif
#ifndef __CUDA_NO_HALF2_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS2(__half2)
#endif

static inline float __half2float(const __half& x) { return x.wide(); }
static inline __half __float2half(float x) { return __half::narrow(x); }
static inline __half __float2half_rn(float x) { return __half::narrow(x); }
static inline __half __double2half(double x) { return __half::narrow(loom_cuda::odd_float(x)); }
static inline __half __float2half_rz(float x) {
  return loom_cuda::narrow_towards<__half>(x, loom_cuda::Towards::kZero);
}
static inline __half __float2half_ru(float x) {
  return loom_cuda::narrow_towards<__half>(x, loom_cuda::Towards::kUp);
}
static inline __half __float2half_rd(float x) {
  return loom_cuda::narrow_towards<__half>(x, loom_cuda::Towards::kDown);
}
static inline unsigned short __half_as_ushort(__half x) { return x.__x; }
static inline short __half_as_short(__half x) { return static_cast<short>(x.__x); }
static inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
static inline __half __short_as_half(short x) { return __half_raw{static_cast<unsigned short>(x)}; }
static inline __half2 __float2half2_rn(float x) { return {__half::narrow(x), __half::narrow(x)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__half::narrow(x), __half::narrow(y)}; }
static inline __half2 __float22half2_rn(float2 x) { return __floats2half2_rn(x.x, x.y); }
static inline float2 __half22float2(const __half2& x) { return {x.x.wide(), x.y.wide()}; }
static inline __half2 __half2half2(const __half& x) { return {x, x}; }
static inline __half2 __halves2half2(const __half& x, const __half& y) { return {x, y}; }
static inline __half2 make_half2(const __half& x, const __half& y) { return {x, y}; }
static inline __half __low2half(const __half2& x) { return x.x; }
static inline __half __high2half(const __half2& x) { return x.y; }
static inline __half2 __low2half2(const __half2& x) { return {x.x, x.x}; }
static inline __half2 __high2half2(const __half2& x) { return {x.y, x.y}; }
static inline __half2 __lows2half2(const __half2& a, const __half2& b) { return {a.x, b.x}; }
static inline __half2 __highs2half2(const __half2& a, const __half2& b) { return {a.y, b.y}; }
static inline __half2 __lowhigh2highlow(const __half2& x) { return {x.y, x.x}; }
