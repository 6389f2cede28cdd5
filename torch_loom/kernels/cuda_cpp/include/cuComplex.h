// Complex numbers of two floats or doubles, and the functions of them that C programs of CUDA use.
#pragma once

#include <math.h>

#include "vector_types.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// What works on floats has names that end on f.
#define LOOM_CUDA_COMPLEX(T, Complex, f, magnitude)                                                          \
  static inline Complex make_##Complex(T real, T imaginary) {                                                \
    Complex z;                                                                                               \
    z.x = real, z.y = imaginary;                                                                             \
    return z;                                                                                                \
  }                                                                                                          \
  static inline T cuCreal##f(Complex z) { return z.x; }                                                      \
  static inline T cuCimag##f(Complex z) { return z.y; }                                                      \
  static inline Complex cuConj##f(Complex z) { return make_##Complex(z.x, -z.y); }                           \
  static inline Complex cuCadd##f(Complex a, Complex b) { return make_##Complex(a.x + b.x, a.y + b.y); }     \
  static inline Complex cuCsub##f(Complex a, Complex b) { return make_##Complex(a.x - b.x, a.y - b.y); }     \
  static inline Complex cuCmul##f(Complex a, Complex b) {                                                    \
    return make_##Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);                                     \
  }                                                                                                          \
  static inline Complex cuCfma##f(Complex a, Complex b, Complex c) { return cuCadd##f(cuCmul##f(a, b), c); } \
  /* Divided by their sizes first, so that squares neither overflow nor vanish. */                           \
  static inline Complex cuCdiv##f(Complex a, Complex b) {                                                    \
    const T real = b.x < 0 ? -b.x : b.x, imaginary = b.y < 0 ? -b.y : b.y, scale = 1 / (real + imaginary);   \
    const T ax = a.x * scale, ay = a.y * scale, bx = b.x * scale, by = b.y * scale;                          \
    const T one = 1 / (bx * bx + by * by);                                                                   \
    return make_##Complex((ax * bx + ay * by) * one, (ay * bx - ax * by) * one);                             \
  }                                                                                                          \
  static inline T cuCabs##f(Complex z) { return magnitude(z.x, z.y); }

LOOM_CUDA_COMPLEX(float, cuFloatComplex, f, hypotf)
LOOM_CUDA_COMPLEX(double, cuDoubleComplex, , hypot)
#undef LOOM_CUDA_COMPLEX

static inline cuComplex make_cuComplex(float real, float imaginary) {
  return make_cuFloatComplex(real, imaginary);
}
static inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) {
  return make_cuDoubleComplex(z.x, z.y);
}
static inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return make_cuFloatComplex((float)z.x, (float)z.y);
}
