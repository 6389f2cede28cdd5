// The functions that __half and __nv_bfloat16 have alike: they compute in float, and round once.
#pragma once

#include "loom_cuda/atomics.h"
#include "loom_cuda/math.h"
#include "loom_cuda/memory.h"
#include "loom_cuda/warp.h"

// T has `float` as its wide() and is made by T::narrow(float); T2 has two of them, x and y.
#define LOOM_CUDA_SMALL_BINARY(T, T2, name, expression) \
  static inline T name(const T& a_, const T& b_) {      \
    const float a = a_.wide(), b = b_.wide();           \
    return T::narrow(expression);                       \
  }                                                     \
  static inline T2 name##2(const T2& a, const T2& b) { return T2(name(a.x, b.x), name(a.y, b.y)); }
#define LOOM_CUDA_SMALL_COMPARE(T, T2, name, expression)               \
  static inline bool name(const T& a_, const T& b_) {                  \
    const float a = a_.wide(), b = b_.wide();                          \
    return expression;                                                 \
  }                                                                    \
  static inline bool name##u(const T& a, const T& b) {                 \
    return a.wide() != a.wide() || b.wide() != b.wide() || name(a, b); \
  }                                                                    \
  static inline T2 name##2(const T2& a, const T2& b) {                 \
    return T2(T::narrow(name(a.x, b.x)), T::narrow(name(a.y, b.y)));   \
  }
#define LOOM_CUDA_SMALL_UNARY(T, T2, name, expression) \
  static inline T h##name(const T& a_) {               \
    const float a = a_.wide();                         \
    return T::narrow(expression);                      \
  }                                                    \
  static inline T2 h2##name(const T2& a) { return T2(h##name(a.x), h##name(a.y)); }

#define LOOM_CUDA_SMALL_FUNCTIONS(T, T2)                                                                     \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hadd, a + b)                                                               \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hsub, a - b)                                                               \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hmul, a* b)                                                                \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hadd_rn, a + b)                                                            \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hsub_rn, a - b)                                                            \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hmul_rn, a* b)                                                             \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hmax, fmaxf(a, b))                                                         \
  LOOM_CUDA_SMALL_BINARY(T, T2, __hmin, fminf(a, b))                                                         \
  static inline T __hdiv(const T& a, const T& b) { return T::narrow(a.wide() / b.wide()); }                  \
  static inline T2 __h2div(const T2& a, const T2& b) { return T2(__hdiv(a.x, b.x), __hdiv(a.y, b.y)); }      \
  static inline T __hadd_sat(const T& a, const T& b) { return T::narrow(__saturatef(a.wide() + b.wide())); } \
  static inline T __hmul_sat(const T& a, const T& b) { return T::narrow(__saturatef(a.wide() * b.wide())); } \
  static inline T __hfma(const T& a, const T& b, const T& c) {                                               \
    return T::narrow(fmaf(a.wide(), b.wide(), c.wide()));                                                    \
  }                                                                                                          \
  static inline T2 __hfma2(const T2& a, const T2& b, const T2& c) {                                          \
    return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                                 \
  }                                                                                                          \
  static inline T __hfma_relu(const T& a, const T& b, const T& c) {                                          \
    return T::narrow(fmaxf(fmaf(a.wide(), b.wide(), c.wide()), 0));                                          \
  }                                                                                                          \
  static inline T __hneg(const T& a) { return T::narrow(-a.wide()); }                                        \
  static inline T2 __hneg2(const T2& a) { return T2(__hneg(a.x), __hneg(a.y)); }                             \
  static inline T __habs(const T& a) { return T::narrow(fabsf(a.wide())); }                                  \
  static inline T2 __habs2(const T2& a) { return T2(__habs(a.x), __habs(a.y)); }                             \
  static inline bool __hisnan(const T& a) { return a.wide() != a.wide(); }                                   \
  static inline int __hisinf(const T& a) {                                                                   \
    return a.wide() == HUGE_VALF ? 1 : a.wide() == -HUGE_VALF ? -1 : 0;                                      \
  }                                                                                                          \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __heq, a == b)                                                              \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __hne, a < b || b < a)                                                      \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __hlt, a < b)                                                               \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __hle, a <= b)                                                              \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __hgt, a > b)                                                               \
  LOOM_CUDA_SMALL_COMPARE(T, T2, __hge, a >= b)                                                              \
  LOOM_CUDA_SMALL_UNARY(T, T2, exp, expf(a))                                                                 \
  LOOM_CUDA_SMALL_UNARY(T, T2, exp2, exp2f(a))                                                               \
  LOOM_CUDA_SMALL_UNARY(T, T2, exp10, __exp10f(a))                                                           \
  LOOM_CUDA_SMALL_UNARY(T, T2, log, logf(a))                                                                 \
  LOOM_CUDA_SMALL_UNARY(T, T2, log2, log2f(a))                                                               \
  LOOM_CUDA_SMALL_UNARY(T, T2, log10, log10f(a))                                                             \
  LOOM_CUDA_SMALL_UNARY(T, T2, sqrt, sqrtf(a))                                                               \
  LOOM_CUDA_SMALL_UNARY(T, T2, rsqrt, 1 / sqrtf(a))                                                          \
  LOOM_CUDA_SMALL_UNARY(T, T2, rcp, 1 / a)                                                                   \
  LOOM_CUDA_SMALL_UNARY(T, T2, sin, sinf(a))                                                                 \
  LOOM_CUDA_SMALL_UNARY(T, T2, cos, cosf(a))                                                                 \
  LOOM_CUDA_SMALL_UNARY(T, T2, tanh, tanhf(a))                                                               \
  LOOM_CUDA_SMALL_UNARY(T, T2, floor, floorf(a))                                                             \
  LOOM_CUDA_SMALL_UNARY(T, T2, ceil, ceilf(a))                                                               \
  LOOM_CUDA_SMALL_UNARY(T, T2, trunc, truncf(a))                                                             \
  LOOM_CUDA_SMALL_UNARY(T, T2, rint, rintf(a))                                                               \
  static inline float __low2float(const T2& a) { return a.x.wide(); }                                        \
  static inline float __high2float(const T2& a) { return a.y.wide(); }                                       \
  static inline T2 atomicAdd(T2* at, T2 value) {                                                             \
    return loom_cuda::exchange_by(at, [&](T2 old) { return __hadd2(old, value); });                          \
  }                                                                                                          \
  static inline T atomicAdd(T* at, T value) {                                                                \
    return loom_cuda::exchange_by(at, [&](T old) { return __hadd(old, value); });                            \
  }

#define LOOM_CUDA_SMALL_OPERATORS(T)                                             \
  static inline T operator+(const T& a, const T& b) { return __hadd(a, b); }     \
  static inline T operator-(const T& a, const T& b) { return __hsub(a, b); }     \
  static inline T operator*(const T& a, const T& b) { return __hmul(a, b); }     \
  static inline T& operator+=(T& a, const T& b) { return a = a + b; }            \
  static inline T& operator-=(T& a, const T& b) { return a = a - b; }            \
  static inline T& operator*=(T& a, const T& b) { return a = a * b; }            \
  static inline T operator-(const T& a) { return __hneg(a); }                    \
  static inline T operator+(const T& a) { return a; }                            \
  static inline T operator/(const T& a, const T& b) { return __hdiv(a, b); }     \
  static inline T& operator/=(T& a, const T& b) { return a = a / b; }            \
  static inline bool operator==(const T& a, const T& b) { return __heq(a, b); }  \
  static inline bool operator!=(const T& a, const T& b) { return __hneu(a, b); } \
  static inline bool operator<(const T& a, const T& b) { return __hlt(a, b); }   \
  static inline bool operator<=(const T& a, const T& b) { return __hle(a, b); }  \
  static inline bool operator>(const T& a, const T& b) { return __hgt(a, b); }   \
  static inline bool operator>=(const T& a, const T& b) { return __hge(a, b); }
#define LOOM_CUDA_SMALL_OPERATORS2(T2)                                           \
  static inline T2 operator+(const T2& a, const T2& b) { return __hadd2(a, b); } \
  static inline T2 operator-(const T2& a, const T2& b) { return __hsub2(a, b); } \
  static inline T2 operator*(const T2& a, const T2& b) { return __hmul2(a, b); } \
  static inline T2 operator/(const T2& a, const T2& b) { return __h2div(a, b); } \
  static inline T2& operator+=(T2& a, const T2& b) { return a = a + b; }         \
  static inline T2& operator-=(T2& a, const T2& b) { return a = a - b; }         \
  static inline T2& operator*=(T2& a, const T2& b) { return a = a * b; }         \
  static inline T2 operator-(const T2& a) { return __hneg2(a); }
