// IEEE's 16 bits as float, and float rounded to them, to nearest, even.
#pragma once

#include <string.h>

namespace loom_cuda {

static inline float float_of_half(unsigned short bits) {
#ifdef __F16C__
  typedef short Shorts __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps(Shorts{static_cast<short>(bits)})[0];
#else
  const unsigned sign = static_cast<unsigned>(bits & 0x8000) << 16, rest = bits & 0x7FFF;
  unsigned result;
  if (rest >= 0x7C00) {
    result = sign | 0x7F800000U | (rest & 0x3FF) << 13;
  } else if (rest >= 0x400) {
    result = sign | ((rest << 13) + ((127U - 15) << 23));
  } else {
    // Below the smallest normal number: a multiple of 2^-24.
    const float value = static_cast<float>(rest) * 5.9604644775390625e-8F;
    memcpy(&result, &value, 4);
    result |= sign;
  }
  float value;
  memcpy(&value, &result, 4);
  return value;
#endif
}

static inline unsigned short half_of_float(float value) {
#ifdef __F16C__
  typedef float Floats __attribute__((vector_size(16)));
  return static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(Floats{value}, 0)[0]);
#else
  unsigned bits;
  memcpy(&bits, &value, 4);
  const unsigned sign = bits >> 16 & 0x8000;
  bits &= 0x7FFFFFFFU;
  if (bits > 0x7F800000U) return static_cast<unsigned short>(sign | 0x7E00);
  if (bits >= 0x477FF000U) return static_cast<unsigned short>(sign | 0x7C00);
  if (bits < 0x38800000U) {
    // The sum with 0.5 leaves the rounded multiple of 2^-24 in the lowest bits.
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    magnitude += 0.5F;
    memcpy(&bits, &magnitude, 4);
    return static_cast<unsigned short>(sign | (bits - 0x3F000000U));
  }
  bits += 0xFFF + (bits >> 13 & 1);
  return static_cast<unsigned short>(sign | ((bits - ((127U - 15) << 23)) >> 13));
#endif
}

}  // namespace loom_cuda
