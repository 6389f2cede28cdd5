// CUDA's functions of words that hold two whole numbers of 16 bits or four of 8, and of fused minima and
// maxima.
#pragma once

#include <stdint.h>

namespace loom_cuda {

template <typename T, typename F>
static inline unsigned by_parts(unsigned a, unsigned b, F&& f) {
  unsigned result = 0;
  constexpr unsigned bits = 8 * sizeof(T), all = bits == 8 ? 0xFF : 0xFFFF;
  for (unsigned at = 0; at < 32; at += bits)
    result |= (static_cast<unsigned>(f(static_cast<T>(a >> at), static_cast<T>(b >> at))) & all) << at;
  return result;
}
template <typename T, typename F>
static inline unsigned sum_of_parts(unsigned a, unsigned b, F&& f) {
  unsigned result = 0;
  for (unsigned at = 0; at < 32; at += 8 * sizeof(T))
    result += static_cast<unsigned>(f(static_cast<T>(a >> at), static_cast<T>(b >> at)));
  return result;
}
// The number of T that is nearest.
template <typename T>
static inline int saturated(int x) {
  constexpr bool is_signed = static_cast<T>(-1) < 0;
  constexpr int most = (1 << (8 * sizeof(T) - is_signed)) - 1, least = is_signed ? -most - 1 : 0;
  return x < least ? least : x > most ? most : x;
}

}  // namespace loom_cuda

// name2 and name4; x and y are the parts of two words, as int.
#define LOOM_CUDA_PARTS(name, sign, expression)                                          \
  static inline unsigned name##2(unsigned a, unsigned b) {                               \
    using T = sign##int16_t;                                                             \
    return loom_cuda::by_parts<T>(a, b, [](int x, int y) -> int { return expression; }); \
  }                                                                                      \
  static inline unsigned name##4(unsigned a, unsigned b) {                               \
    using T = sign##int8_t;                                                              \
    return loom_cuda::by_parts<T>(a, b, [](int x, int y) -> int { return expression; }); \
  }
#define LOOM_CUDA_COMPARED_PARTS(relation, sign, expression)   \
  LOOM_CUDA_PARTS(__vcmp##relation, sign, expression ? -1 : 0) \
  LOOM_CUDA_PARTS(__vset##relation, sign, expression ? 1 : 0)
LOOM_CUDA_PARTS(__vadd, u, x + y)
LOOM_CUDA_PARTS(__vsub, u, x - y)
LOOM_CUDA_PARTS(__vaddss, , loom_cuda::saturated<T>(x + y))
LOOM_CUDA_PARTS(__vaddus, u, loom_cuda::saturated<T>(x + y))
LOOM_CUDA_PARTS(__vsubss, , loom_cuda::saturated<T>(x - y))
LOOM_CUDA_PARTS(__vsubus, u, loom_cuda::saturated<T>(x - y))
// Halves are rounded away from zero, those of __vhaddu are dropped.
LOOM_CUDA_PARTS(__vavgs, , (x + y + (x + y >= 0)) >> 1)
LOOM_CUDA_PARTS(__vavgu, u, (x + y + 1) >> 1)
LOOM_CUDA_PARTS(__vhaddu, u, (x + y) >> 1)
LOOM_CUDA_PARTS(__vmaxs, , x < y ? y : x)
LOOM_CUDA_PARTS(__vmaxu, u, x < y ? y : x)
LOOM_CUDA_PARTS(__vmins, , y < x ? y : x)
LOOM_CUDA_PARTS(__vminu, u, y < x ? y : x)
LOOM_CUDA_PARTS(__vabsdiffs, , x < y ? y - x : x - y)
LOOM_CUDA_PARTS(__vabsdiffu, u, x < y ? y - x : x - y)
LOOM_CUDA_COMPARED_PARTS(eq, u, x == y)
LOOM_CUDA_COMPARED_PARTS(ne, u, x != y)
LOOM_CUDA_COMPARED_PARTS(ges, , x >= y)
LOOM_CUDA_COMPARED_PARTS(geu, u, x >= y)
LOOM_CUDA_COMPARED_PARTS(gts, , x > y)
LOOM_CUDA_COMPARED_PARTS(gtu, u, x > y)
LOOM_CUDA_COMPARED_PARTS(les, , x <= y)
LOOM_CUDA_COMPARED_PARTS(leu, u, x <= y)
LOOM_CUDA_COMPARED_PARTS(lts, , x < y)
LOOM_CUDA_COMPARED_PARTS(ltu, u, x < y)
#undef LOOM_CUDA_COMPARED_PARTS
#undef LOOM_CUDA_PARTS

// Of each part's size: names with 2 and with 4.
#define LOOM_CUDA_SIZED(n, S, U)                                                                             \
  static inline unsigned __vneg##n(unsigned a) { return __vsub##n(0, a); }                                   \
  static inline unsigned __vnegss##n(unsigned a) { return __vsubss##n(0, a); }                               \
  static inline unsigned __vabs##n(unsigned a) {                                                             \
    return loom_cuda::by_parts<S>(a, 0, [](int x, int) { return x < 0 ? -x : x; });                          \
  }                                                                                                          \
  static inline unsigned __vabsss##n(unsigned a) {                                                           \
    return loom_cuda::by_parts<S>(a, 0, [](int x, int) { return loom_cuda::saturated<S>(x < 0 ? -x : x); }); \
  }                                                                                                          \
  static inline unsigned __vsads##n(unsigned a, unsigned b) {                                                \
    return loom_cuda::sum_of_parts<S>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });             \
  }                                                                                                          \
  static inline unsigned __vsadu##n(unsigned a, unsigned b) {                                                \
    return loom_cuda::sum_of_parts<U>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });             \
  }
LOOM_CUDA_SIZED(2, int16_t, uint16_t)
LOOM_CUDA_SIZED(4, int8_t, uint8_t)
#undef LOOM_CUDA_SIZED

// The least or greatest of two and three numbers, of a sum and a number; _relu: and of 0. By __vib...,
// whether it is the first one.
#define LOOM_CUDA_FUSED(m, before, T, type, sum)                      \
  static inline T __vi##m##3_##type(T a, T b, T c) {                  \
    const T least = b before a ? b : a;                               \
    return c before least ? c : least;                                \
  }                                                                   \
  static inline T __viadd##m##_##type(T a, T b, T c) {                \
    const T added = static_cast<T>(sum);                              \
    return c before added ? c : added;                                \
  }                                                                   \
  static inline T __vib##m##_##type(T a, T b, bool* const is_first) { \
    *is_first = !(b before a);                                        \
    return *is_first ? a : b;                                         \
  }
#define LOOM_CUDA_FUSED_RELU(m)                                  \
  static inline int __vi##m##_s32_relu(int a, int b) {           \
    const int one = __vi##m##3_s32(a, b, b);                     \
    return one < 0 ? 0 : one;                                    \
  }                                                              \
  static inline int __vi##m##3_s32_relu(int a, int b, int c) {   \
    const int one = __vi##m##3_s32(a, b, c);                     \
    return one < 0 ? 0 : one;                                    \
  }                                                              \
  static inline int __viadd##m##_s32_relu(int a, int b, int c) { \
    const int one = __viadd##m##_s32(a, b, c);                   \
    return one < 0 ? 0 : one;                                    \
  }
LOOM_CUDA_FUSED(max, >, int, s32, static_cast<unsigned>(a) + static_cast<unsigned>(b))
LOOM_CUDA_FUSED(min, <, int, s32, static_cast<unsigned>(a) + static_cast<unsigned>(b))
LOOM_CUDA_FUSED(max, >, unsigned, u32, a + b)
LOOM_CUDA_FUSED(min, <, unsigned, u32, a + b)
LOOM_CUDA_FUSED_RELU(max)
LOOM_CUDA_FUSED_RELU(min)
#undef LOOM_CUDA_FUSED_RELU
#undef LOOM_CUDA_FUSED
