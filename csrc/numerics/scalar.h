// One element or one block at a time, in integers: what the vector code falls back to where a block holds an
// infinity, a NaN or values next to float32's smallest.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/formats.h"
#include "numerics/kernels.h"

namespace loom::numerics::scalar {

inline constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7F800000u, kNaN = 0x7FC00000u,
                          kLargest = 0x7F7FFFFFu, kSmallestNormal = 0x00800000u;

// magnitude · 2^power as float32 bits; denormal where it must be. The value must be exact there.
inline uint32_t scaled(uint32_t magnitude, int power) {
  if (magnitude == 0) return 0;
  const int leading = 31 - std::countl_zero(magnitude);
  const int exponent = power + leading + 127;
  if (exponent < 1) return magnitude << (power + 149);
  return static_cast<uint32_t>(exponent) << 23 | ((magnitude << (23 - leading)) & 0x7FFFFFu);
}

// Magnitude of an element, in units of 2^(exponent - 127 - (bits - 1)), halves rounded away from zero.
inline uint32_t magnitude_of(uint32_t absolute, int exponent, int bits) {
  const int own = static_cast<int>(absolute >> 23);
  const uint32_t significand = own == 0 ? absolute : (absolute & 0x7FFFFFu) | 0x800000u;
  const int shift = exponent - (own == 0 ? 1 : own) + 24 - bits;
  if (shift > 25) return 0;
  const uint32_t rounded = (significand + (1u << (shift - 1))) >> shift;
  const uint32_t most = (1u << bits) - 1;
  return rounded < most ? rounded : most;
}

// Shared exponent of a block of magnitudes as stored, and the power of their unit.
struct BlockScale {
  int exponent, power;
  bool is_zero, is_saturated;
};

inline BlockScale scale_of(int exponent, int bits, bool short_exponent) {
  BlockScale scale{exponent, exponent - 127 - (bits - 1), exponent == 0, false};
  if (!short_exponent) return scale;
  scale.exponent = exponent - 127 + 15;
  if (scale.exponent < 0) {
    scale.is_zero = true;
  } else if (scale.exponent > 31) {
    scale.is_saturated = true;
    scale.exponent = 31;
    scale.power = 31 - 15 - (bits - 1);
  }
  return scale;
}

inline uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

// The values of a block, rounded to a block format; infinities and NaNs are counted.
void quantize_block(Format format, const float* in, float* out, int64_t count, Counts& counts);

}  // namespace loom::numerics::scalar
