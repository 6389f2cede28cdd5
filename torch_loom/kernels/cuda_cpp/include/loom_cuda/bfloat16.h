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
  __nv_bfloat16(double value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(short value) : __nv_bfloat16(static_cast<float>(value)) {}
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
#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS(__nv_bfloat16)
#endif
#ifndef __CUDA_NO_BFLOAT162_OPERATORS__
LOOM_CUDA_SMALL_OPERATORS2(__nv_bfloat162)
#endif

static inline float __bfloat162float(const __nv_bfloat16& x) { return x.wide(); }
#define LOOM_CUDA_BFLOAT16_OF(name, From) \
  static inline __nv_bfloat16 name(From x) { return __nv_bfloat16::narrow(static_cast<float>(x)); }
LOOM_CUDA_BFLOAT16_OF(__float2bfloat16, float)
LOOM_CUDA_BFLOAT16_OF(__float2bfloat16_rn, float)
LOOM_CUDA_BFLOAT16_OF(__float2bfloat16_rz, float)
LOOM_CUDA_BFLOAT16_OF(__double2bfloat16, double)
LOOM_CUDA_BFLOAT16_OF(__int2bfloat16_rn, int)
LOOM_CUDA_BFLOAT16_OF(__uint2bfloat16_rn, unsigned)
LOOM_CUDA_BFLOAT16_OF(__ll2bfloat16_rn, long long)
#undef LOOM_CUDA_BFLOAT16_OF
static inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x.wide()); }
static inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x.wide()); }
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
