// The functions that __half and __nv_bfloat16 have alike: they compute in float, and round once.
#pragma once

#include "loom_cuda/atomics.h"
#include "loom_cuda/math.h"
#include "loom_cuda/memory.h"
#include "loom_cuda/warp.h"

namespace loom_cuda {

// The float beside x whose last bit is odd, if none is equal: rounded once more, it gives what x does.
static inline float odd_float(double x) {
  float near = static_cast<float>(x);
  if (near != near || static_cast<double>(near) == x) return near;
  unsigned bits;
  memcpy(&bits, &near, 4);
  if (::fabs(static_cast<double>(near)) > ::fabs(x)) --bits;
  bits |= 1;
  memcpy(&near, &bits, 4);
  return near;
}

enum class Towards { kZero, kUp, kDown };
// The number of T beside x on that side; x is a number of W, which is wide enough for it.
template <typename T, typename W>
static inline T narrow_towards(W x, Towards side) {
  T near = T::narrow(odd_float(static_cast<double>(x)));
  const W value = near.wide();
  if (value == x || value != value) return near;
  const bool is_low = value < x;
  if (side == Towards::kUp ? !is_low : side == Towards::kDown ? is_low : is_low == (x > 0)) return near;
  // To the neighbour on the other side of x; numbers of one sign are in the order of their bits.
  near.__x = static_cast<unsigned short>(near.__x + (is_low == (x > 0) ? 1 : -1));
  return near;
}

}  // namespace loom_cuda

// T has `float` as its wide() and is made by T::narrow(float); T2 has two of them, x and y.
#define LOOM_CUDA_SMALL_BINARY(T, T2, name, expression) \
  static inline T name(const T& a_, const T& b_) {      \
    const float a = a_.wide(), b = b_.wide();           \
    return T::narrow(expression);                       \
  }                                                     \
  static inline T2 name##2(const T2& a, const T2& b) { return T2(name(a.x, b.x), name(a.y, b.y)); }
#define LOOM_CUDA_SMALL_COMPARE(T, T2, name, expression)                   \
  static inline bool name(const T& a_, const T& b_) {                      \
    const float a = a_.wide(), b = b_.wide();                              \
    return expression;                                                     \
  }                                                                        \
  static inline bool name##u(const T& a, const T& b) {                     \
    return a.wide() != a.wide() || b.wide() != b.wide() || name(a, b);     \
  }                                                                        \
  static inline T2 name##2(const T2& a, const T2& b) {                     \
    return T2(T::narrow(name(a.x, b.x)), T::narrow(name(a.y, b.y)));       \
  }                                                                        \
  static inline T2 name##u2(const T2& a, const T2& b) {                    \
    return T2(T::narrow(name##u(a.x, b.x)), T::narrow(name##u(a.y, b.y))); \
  }
// What the compiler makes no part of a fused operation; it makes none here.
#define LOOM_CUDA_SMALL_ALONE(T, T2, name)                                           \
  static inline T __h##name##_rn(const T& a, const T& b) { return __h##name(a, b); } \
  static inline T2 __h##name##2_rn(const T2& a, const T2& b) { return __h##name##2(a, b); }
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
  LOOM_CUDA_SMALL_ALONE(T, T2, add)                                                                          \
  LOOM_CUDA_SMALL_ALONE(T, T2, sub)                                                                          \
  LOOM_CUDA_SMALL_ALONE(T, T2, mul)                                                                          \
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
  LOOM_CUDA_SMALL_UNARY(T, T2, tanh_approx, tanhf(a))                                                        \
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

// __hb: whether it is true of both numbers; _mask: all bits of each number of which it is true.
#define LOOM_CUDA_SMALL_BOTH(T2, name)                                                          \
  static inline bool __hb##name##2(const T2& a, const T2& b) {                                  \
    return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                          \
  }                                                                                             \
  static inline bool __hb##name##u2(const T2& a, const T2& b) {                                 \
    return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                    \
  }                                                                                             \
  static inline unsigned __h##name##2_mask(const T2& a, const T2& b) {                          \
    return (__h##name(a.x, b.x) ? 0xFFFFU : 0) | (__h##name(a.y, b.y) ? 0xFFFF0000U : 0);       \
  }                                                                                             \
  static inline unsigned __h##name##u2_mask(const T2& a, const T2& b) {                         \
    return (__h##name##u(a.x, b.x) ? 0xFFFFU : 0) | (__h##name##u(a.y, b.y) ? 0xFFFF0000U : 0); \
  }

#define LOOM_CUDA_SMALL_COMPARISONS(T, T2)                                                                   \
  LOOM_CUDA_SMALL_BOTH(T2, eq)                                                                               \
  LOOM_CUDA_SMALL_BOTH(T2, ne)                                                                               \
  LOOM_CUDA_SMALL_BOTH(T2, lt)                                                                               \
  LOOM_CUDA_SMALL_BOTH(T2, le)                                                                               \
  LOOM_CUDA_SMALL_BOTH(T2, gt)                                                                               \
  LOOM_CUDA_SMALL_BOTH(T2, ge)                                                                               \
  static inline T2 __hisnan2(const T2& a) { return T2(T::narrow(__hisnan(a.x)), T::narrow(__hisnan(a.y))); } \
  /* NaN where one of the two is. */                                                                         \
  static inline T __hmax_nan(const T& a, const T& b) {                                                       \
    return __hisnan(a) || __hisnan(b) ? T::narrow(NAN) : __hmax(a, b);                                       \
  }                                                                                                          \
  static inline T __hmin_nan(const T& a, const T& b) {                                                       \
    return __hisnan(a) || __hisnan(b) ? T::narrow(NAN) : __hmin(a, b);                                       \
  }                                                                                                          \
  static inline T2 __hmax2_nan(const T2& a, const T2& b) {                                                   \
    return T2(__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y));                                                   \
  }                                                                                                          \
  static inline T2 __hmin2_nan(const T2& a, const T2& b) {                                                   \
    return T2(__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y));                                                   \
  }

// Sums and products that are kept between 0 and 1 (_sat) or from 0 on (_relu), and those of complex numbers.
#define LOOM_CUDA_SMALL_CLAMPED(T, T2)                                                                       \
  static inline T __hsub_sat(const T& a, const T& b) { return T::narrow(__saturatef(a.wide() - b.wide())); } \
  static inline T __hfma_sat(const T& a, const T& b, const T& c) {                                           \
    return T::narrow(__saturatef(fmaf(a.wide(), b.wide(), c.wide())));                                       \
  }                                                                                                          \
  static inline T2 __hadd2_sat(const T2& a, const T2& b) {                                                   \
    return T2(__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y));                                                   \
  }                                                                                                          \
  static inline T2 __hsub2_sat(const T2& a, const T2& b) {                                                   \
    return T2(__hsub_sat(a.x, b.x), __hsub_sat(a.y, b.y));                                                   \
  }                                                                                                          \
  static inline T2 __hmul2_sat(const T2& a, const T2& b) {                                                   \
    return T2(__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y));                                                   \
  }                                                                                                          \
  static inline T2 __hfma2_sat(const T2& a, const T2& b, const T2& c) {                                      \
    return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y));                                         \
  }                                                                                                          \
  static inline T2 __hfma2_relu(const T2& a, const T2& b, const T2& c) {                                     \
    return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y));                                       \
  }                                                                                                          \
  /* A product of complex numbers, and a number added. */                                                    \
  static inline T2 __hcmadd(const T2& a, const T2& b, const T2& c) {                                         \
    return T2(__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)));     \
  }

// From and to whole numbers, in all modes: __int2half_rn and its like, where the format is called `half`.
#define LOOM_CUDA_SMALL_WHOLE(T, format, name, From)                                                    \
  static inline T __##name##2##format##_rn(From x) {                                                    \
    return T::narrow(loom_cuda::odd_float(static_cast<double>(x)));                                     \
  }                                                                                                     \
  static inline T __##name##2##format##_rz(From x) {                                                    \
    return loom_cuda::narrow_towards<T, long double>(x, loom_cuda::Towards::kZero);                     \
  }                                                                                                     \
  static inline T __##name##2##format##_ru(From x) {                                                    \
    return loom_cuda::narrow_towards<T, long double>(x, loom_cuda::Towards::kUp);                       \
  }                                                                                                     \
  static inline T __##name##2##format##_rd(From x) {                                                    \
    return loom_cuda::narrow_towards<T, long double>(x, loom_cuda::Towards::kDown);                     \
  }                                                                                                     \
  static inline From __##format##2##name##_rn(T x) { return loom_cuda::whole<From>(rintf(x.wide())); }  \
  static inline From __##format##2##name##_rz(T x) { return loom_cuda::whole<From>(truncf(x.wide())); } \
  static inline From __##format##2##name##_ru(T x) { return loom_cuda::whole<From>(ceilf(x.wide())); }  \
  static inline From __##format##2##name##_rd(T x) { return loom_cuda::whole<From>(floorf(x.wide())); }
#define LOOM_CUDA_SMALL_WHOLES(T, format)                     \
  LOOM_CUDA_SMALL_WHOLE(T, format, int, int)                  \
  LOOM_CUDA_SMALL_WHOLE(T, format, uint, unsigned)            \
  LOOM_CUDA_SMALL_WHOLE(T, format, short, short)              \
  LOOM_CUDA_SMALL_WHOLE(T, format, ushort, unsigned short)    \
  LOOM_CUDA_SMALL_WHOLE(T, format, ll, long long)             \
  LOOM_CUDA_SMALL_WHOLE(T, format, ull, unsigned long long)   \
  static inline signed char __##format##2char_rz(T x) {       \
    return loom_cuda::whole<signed char>(truncf(x.wide()));   \
  }                                                           \
  static inline unsigned char __##format##2uchar_rz(T x) {    \
    return loom_cuda::whole<unsigned char>(truncf(x.wide())); \
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
  static inline T& operator++(T& a) { return a = __hadd(a, T::narrow(1)); }      \
  static inline T& operator--(T& a) { return a = __hsub(a, T::narrow(1)); }      \
  static inline T operator++(T& a, int) {                                        \
    const T old = a;                                                             \
    ++a;                                                                         \
    return old;                                                                  \
  }                                                                              \
  static inline T operator--(T& a, int) {                                        \
    const T old = a;                                                             \
    --a;                                                                         \
    return old;                                                                  \
  }                                                                              \
  static inline bool operator==(const T& a, const T& b) { return __heq(a, b); }  \
  static inline bool operator!=(const T& a, const T& b) { return __hneu(a, b); } \
  static inline bool operator<(const T& a, const T& b) { return __hlt(a, b); }   \
  static inline bool operator<=(const T& a, const T& b) { return __hle(a, b); }  \
  static inline bool operator>(const T& a, const T& b) { return __hgt(a, b); }   \
  static inline bool operator>=(const T& a, const T& b) { return __hge(a, b); }
#define LOOM_CUDA_SMALL_OPERATORS2(T2)                                               \
  static inline T2 operator+(const T2& a, const T2& b) { return __hadd2(a, b); }     \
  static inline T2 operator-(const T2& a, const T2& b) { return __hsub2(a, b); }     \
  static inline T2 operator*(const T2& a, const T2& b) { return __hmul2(a, b); }     \
  static inline T2 operator/(const T2& a, const T2& b) { return __h2div(a, b); }     \
  static inline T2& operator+=(T2& a, const T2& b) { return a = a + b; }             \
  static inline T2& operator-=(T2& a, const T2& b) { return a = a - b; }             \
  static inline T2& operator*=(T2& a, const T2& b) { return a = a * b; }             \
  static inline T2& operator/=(T2& a, const T2& b) { return a = a / b; }             \
  static inline T2 operator+(const T2& a) { return a; }                              \
  static inline T2 operator-(const T2& a) { return __hneg2(a); }                     \
  static inline bool operator==(const T2& a, const T2& b) { return __hbeq2(a, b); }  \
  static inline bool operator!=(const T2& a, const T2& b) { return __hbneu2(a, b); } \
  static inline bool operator<(const T2& a, const T2& b) { return __hblt2(a, b); }   \
  static inline bool operator<=(const T2& a, const T2& b) { return __hble2(a, b); }  \
  static inline bool operator>(const T2& a, const T2& b) { return __hbgt2(a, b); }   \
  static inline bool operator>=(const T2& a, const T2& b) { return __hbge2(a, b); }
