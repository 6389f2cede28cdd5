// __nv_fp4_e2m1, of one, two and four numbers: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Rounded to
// nearest, even; what is too large becomes 6, and NaN, too.
#pragma once

#include "loom_cuda/float8.h"

typedef unsigned char __nv_fp4_storage_t;
typedef unsigned char __nv_fp4x2_storage_t;
typedef unsigned short __nv_fp4x4_storage_t;
typedef enum { __NV_E2M1 } __nv_fp4_interpretation_t;

namespace loom_cuda {

static inline unsigned float4_of(float x) {
  if (x != x) return 7;
  const float magnitude = fabsf(x), middles[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
  unsigned code = 0;
  while (code < 7 && (magnitude > middles[code] || (magnitude == middles[code] && code % 2 != 0))) ++code;
  return code | (signbit(x) ? 8 : 0);
}
static inline float of_float4(unsigned code) {
  const float numbers[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6}, magnitude = numbers[code & 7];
  return code & 8 ? -magnitude : magnitude;
}

}  // namespace loom_cuda

static inline __nv_fp4_storage_t __nv_cvt_float_to_fp4(float x, __nv_fp4_interpretation_t,
                                                       enum cudaRoundMode) {
  return static_cast<__nv_fp4_storage_t>(loom_cuda::float4_of(x));
}
static inline __nv_fp4_storage_t __nv_cvt_double_to_fp4(double x, __nv_fp4_interpretation_t k,
                                                        enum cudaRoundMode mode) {
  return __nv_cvt_float_to_fp4(loom_cuda::odd_float(x), k, mode);
}
static inline __nv_fp4_storage_t __nv_cvt_halfraw_to_fp4(__half_raw x, __nv_fp4_interpretation_t k,
                                                         enum cudaRoundMode mode) {
  return __nv_cvt_float_to_fp4(__half(x).wide(), k, mode);
}
static inline __nv_fp4_storage_t __nv_cvt_bfloat16raw_to_fp4(__nv_bfloat16_raw x, __nv_fp4_interpretation_t k,
                                                             enum cudaRoundMode mode) {
  return __nv_cvt_float_to_fp4(__nv_bfloat16(x).wide(), k, mode);
}
// The first number is in the lower bits.
static inline __nv_fp4x2_storage_t __nv_cvt_float2_to_fp4x2(float2 x, __nv_fp4_interpretation_t k,
                                                            enum cudaRoundMode mode) {
  return static_cast<__nv_fp4x2_storage_t>(__nv_cvt_float_to_fp4(x.x, k, mode) |
                                           __nv_cvt_float_to_fp4(x.y, k, mode) << 4);
}
static inline __nv_fp4x2_storage_t __nv_cvt_double2_to_fp4x2(double2 x, __nv_fp4_interpretation_t k,
                                                             enum cudaRoundMode mode) {
  return static_cast<__nv_fp4x2_storage_t>(__nv_cvt_double_to_fp4(x.x, k, mode) |
                                           __nv_cvt_double_to_fp4(x.y, k, mode) << 4);
}
static inline __nv_fp4x2_storage_t __nv_cvt_halfraw2_to_fp4x2(__half2_raw x, __nv_fp4_interpretation_t k,
                                                              enum cudaRoundMode mode) {
  return __nv_cvt_float2_to_fp4x2(__half22float2(x), k, mode);
}
static inline __nv_fp4x2_storage_t __nv_cvt_bfloat16raw2_to_fp4x2(__nv_bfloat162_raw x,
                                                                  __nv_fp4_interpretation_t k,
                                                                  enum cudaRoundMode mode) {
  return __nv_cvt_float2_to_fp4x2(__bfloat1622float2(x), k, mode);
}
static inline __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x, __nv_fp4_interpretation_t) {
  return {loom_cuda::half_of_float(loom_cuda::of_float4(x))};
}
static inline __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x, __nv_fp4_interpretation_t k) {
  return {__nv_cvt_fp4_to_halfraw(x & 15, k).x, __nv_cvt_fp4_to_halfraw(x >> 4, k).x};
}

struct __nv_fp4_e2m1 {
  __nv_fp4_storage_t __x;
  __nv_fp4_e2m1() = default;
  explicit __nv_fp4_e2m1(float x) : __x(static_cast<__nv_fp4_storage_t>(loom_cuda::float4_of(x))) {}
  explicit __nv_fp4_e2m1(double x) : __nv_fp4_e2m1(loom_cuda::odd_float(x)) {}
  explicit __nv_fp4_e2m1(int x) : __nv_fp4_e2m1(static_cast<float>(x)) {}
  explicit __nv_fp4_e2m1(__half x) : __nv_fp4_e2m1(x.wide()) {}
  explicit __nv_fp4_e2m1(__nv_bfloat16 x) : __nv_fp4_e2m1(x.wide()) {}
  explicit operator float() const { return loom_cuda::of_float4(__x); }
  explicit operator double() const { return loom_cuda::of_float4(__x); }
  explicit operator __half() const { return __half::narrow(loom_cuda::of_float4(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16::narrow(loom_cuda::of_float4(__x)); }
};
struct __nv_fp4x2_e2m1 {
  __nv_fp4x2_storage_t __x;
  __nv_fp4x2_e2m1() = default;
  explicit __nv_fp4x2_e2m1(float2 x) : __x(__nv_cvt_float2_to_fp4x2(x, __NV_E2M1, cudaRoundNearest)) {}
  explicit __nv_fp4x2_e2m1(double2 x) : __x(__nv_cvt_double2_to_fp4x2(x, __NV_E2M1, cudaRoundNearest)) {}
  explicit __nv_fp4x2_e2m1(__half2 x) : __nv_fp4x2_e2m1(__half22float2(x)) {}
  explicit __nv_fp4x2_e2m1(__nv_bfloat162 x) : __nv_fp4x2_e2m1(__bfloat1622float2(x)) {}
  explicit operator float2() const { return {loom_cuda::of_float4(__x), loom_cuda::of_float4(__x >> 4)}; }
  explicit operator __half2() const { return __float22half2_rn(static_cast<float2>(*this)); }
};
struct __attribute__((aligned(2))) __nv_fp4x4_e2m1 {
  __nv_fp4x4_storage_t __x;
  __nv_fp4x4_e2m1() = default;
  explicit __nv_fp4x4_e2m1(float4 x)
      : __x(static_cast<__nv_fp4x4_storage_t>(loom_cuda::float4_of(x.x) | loom_cuda::float4_of(x.y) << 4 |
                                              loom_cuda::float4_of(x.z) << 8 |
                                              loom_cuda::float4_of(x.w) << 12)) {}
  explicit __nv_fp4x4_e2m1(__half2 low, __half2 high)
      : __nv_fp4x4_e2m1(float4{low.x.wide(), low.y.wide(), high.x.wide(), high.y.wide()}) {}
  explicit __nv_fp4x4_e2m1(__nv_bfloat162 low, __nv_bfloat162 high)
      : __nv_fp4x4_e2m1(float4{low.x.wide(), low.y.wide(), high.x.wide(), high.y.wide()}) {}
  explicit operator float4() const {
    const auto part = [this](int i) { return loom_cuda::of_float4(__x >> 4 * i); };
    return {part(0), part(1), part(2), part(3)};
  }
};
