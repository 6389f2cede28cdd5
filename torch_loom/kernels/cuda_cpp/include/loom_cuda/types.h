// Vectors of two to four numbers, modes of rounding, and dim3.
#pragma once

#define LOOM_CUDA_VECTORS(T, name, a2, a4)                                            \
  struct name##1 { T x; };                                                            \
  struct __attribute__((aligned(a2))) name##2 { T x, y; };                            \
  struct name##3 { T x, y, z; };                                                      \
  struct __attribute__((aligned(a4))) name##4 { T x, y, z, w; };                      \
  static inline constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  static inline constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  static inline constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  static inline constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

LOOM_CUDA_VECTORS(signed char, char, 2, 4)
LOOM_CUDA_VECTORS(unsigned char, uchar, 2, 4)
LOOM_CUDA_VECTORS(short, short, 4, 8)
LOOM_CUDA_VECTORS(unsigned short, ushort, 4, 8)
LOOM_CUDA_VECTORS(int, int, 8, 16)
LOOM_CUDA_VECTORS(unsigned int, uint, 8, 16)
LOOM_CUDA_VECTORS(long, long, 16, 16)
LOOM_CUDA_VECTORS(unsigned long, ulong, 16, 16)
LOOM_CUDA_VECTORS(long long, longlong, 16, 16)
LOOM_CUDA_VECTORS(unsigned long long, ulonglong, 16, 16)
LOOM_CUDA_VECTORS(float, float, 8, 16)
LOOM_CUDA_VECTORS(double, double, 16, 16)
#undef LOOM_CUDA_VECTORS

// Four numbers of eight bytes, with their alignment in the name.
#define LOOM_CUDA_WIDE_VECTOR(T, name, bytes)                                                \
  struct __attribute__((aligned(bytes))) name##4_##bytes##a { T x, y, z, w; };               \
  static inline constexpr name##4_##bytes##a make_##name##4_##bytes##a(T x, T y, T z, T w) { \
    return {x, y, z, w};                                                                     \
  }
#define LOOM_CUDA_WIDE_VECTORS(T, name) LOOM_CUDA_WIDE_VECTOR(T, name, 16) LOOM_CUDA_WIDE_VECTOR(T, name, 32)
LOOM_CUDA_WIDE_VECTORS(long, long)
LOOM_CUDA_WIDE_VECTORS(unsigned long, ulong)
LOOM_CUDA_WIDE_VECTORS(long long, longlong)
LOOM_CUDA_WIDE_VECTORS(unsigned long long, ulonglong)
LOOM_CUDA_WIDE_VECTORS(double, double)
#undef LOOM_CUDA_WIDE_VECTORS
#undef LOOM_CUDA_WIDE_VECTOR

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
