// __nv_bfloat16 and __nv_bfloat162: the upper half of a float, rounded to nearest, even.
#pragma once

#include "loom_cuda/small_floats.h"

namespace loom_cuda {

static inline float float_of_bfloat16(unsigned short bits) {
  const unsigned word = static_cast<unsigned>(bits) << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}
static inline unsigned short bfloat16_of_float(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  const unsigned rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<unsigned short>(value != value ? 0x7FFF : rounded);
}

}  // namespace loom_cuda

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat162_raw {
  unsigned short x, y;
};

struct __attribute__((aligned(2))) __nv_bfloat16 {
  unsigned short __x;

  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  static __nv_bfloat16 narrow(float value) { return __nv_bfloat16_raw{loom_cuda::bfloat16_of_float(value)}; }
  float wide() const { return loom_cuda::float_of_bfloat16(__x); }
  operator __nv_bfloat16_raw() const { return {__x}; }
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
  __nv_bfloat16(float value) : __x(loom_cuda::bfloat16_of_float(value)) {}
  __nv_bfloat16(double value) : __nv_bfloat16(loom_cuda::odd_float(value)) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(short value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned short value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(long long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned long long value) : __nv_bfloat16(static_cast<float>(value)) {}
  operator float() const { return wide(); }
  explicit operator bool() const { return (__x & 0x7FFF) != 0; }
#endif
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(const __nv_bfloat16& x, const __nv_bfloat16& y) : x(x), y(y) {}
  __nv_bfloat162(const __nv_bfloat162_raw& raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

LOOM_CUDA_SMALL_FUNCTIONS(__nv_bfloat16, __nv_bfloat162)
LOOM_CUDA_SMALL_COMPARISONS(__nv_bfloat16, __nv_bfloat162)
LOOM_CUDA_SMALL_CLAMPED(__nv_bfloat16, __nv_bfloat162)
LOOM_CUDA_SMALL_WHOLES(__nv_bfloat16, bfloat16)
#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS(__nv_bfloat16)
#endif
#ifndef __CUDA_NO_BFLOAT162_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS2(__nv_bfloat162)
#endif

static inline float __bfloat162float(const __nv_bfloat16& x) { return x.wide(); }
static inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16::narrow(x); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16::narrow(x); }
static inline __nv_bfloat16 __double2bfloat16(double x) {
  return __nv_bfloat16::narrow(loom_cuda::odd_float(x));
}
static inline __nv_bfloat16 __float2bfloat16_rz(float x) {
  return loom_cuda::narrow_towards<__nv_bfloat16>(x, loom_cuda::Towards::kZero);
}
static inline __nv_bfloat16 __float2bfloat16_ru(float x) {
  return loom_cuda::narrow_towards<__nv_bfloat16>(x, loom_cuda::Towards::kUp);
}
static inline __nv_bfloat16 __float2bfloat16_rd(float x) {
  return loom_cuda::narrow_towards<__nv_bfloat16>(x, loom_cuda::Towards::kDown);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
static inline short __bfloat16_as_short(__nv_bfloat16 x) { return static_cast<short>(x.__x); }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
static inline __nv_bfloat16 __short_as_bfloat16(short x) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(x)};
}
static inline __nv_bfloat162 __float2bfloat162_rn(float x) {
  return {__nv_bfloat16::narrow(x), __nv_bfloat16::narrow(x)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16::narrow(x), __nv_bfloat16::narrow(y)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return __floats2bfloat162_rn(x.x, x.y); }
static inline float2 __bfloat1622float2(const __nv_bfloat162& x) { return {x.x.wide(), x.y.wide()}; }
static inline __nv_bfloat162 __bfloat162bfloat162(const __nv_bfloat16& x) { return {x, x}; }
static inline __nv_bfloat162 __halves2bfloat162(const __nv_bfloat16& x, const __nv_bfloat16& y) {
  return {x, y};
}
static inline __nv_bfloat162 make_bfloat162(const __nv_bfloat16& x, const __nv_bfloat16& y) { return {x, y}; }
static inline __nv_bfloat16 __low2bfloat16(const __nv_bfloat162& x) { return x.x; }
static inline __nv_bfloat16 __high2bfloat16(const __nv_bfloat162& x) { return x.y; }
static inline __nv_bfloat162 __low2bfloat162(const __nv_bfloat162& x) { return {x.x, x.x}; }
static inline __nv_bfloat162 __high2bfloat162(const __nv_bfloat162& x) { return {x.y, x.y}; }
static inline __nv_bfloat162 __lows2bfloat162(const __nv_bfloat162& a, const __nv_bfloat162& b) {
  return {a.x, b.x};
}
static inline __nv_bfloat162 __highs2bfloat162(const __nv_bfloat162& a, const __nv_bfloat162& b) {
  return {a.y, b.y};
}
static inline __nv_bfloat162 __lowhigh2highlow(const __nv_bfloat162& x) { return {x.y, x.x}; }
