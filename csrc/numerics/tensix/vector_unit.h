// Primitives of the vector unit (SFPU), one lane at a time. Values are the bits of float32.
#pragma once

#include <cstdint>

#include "numerics/tensix/words.h"

namespace loom::numerics::tensix {

// SFPMAD: a · b + c.
uint32_t multiply_add(Chip chip, uint32_t a, uint32_t b, uint32_t c);

// SFP_STOCH_RND without its random bits: to a bfloat16 (as float32), and to integers as sign and magnitude.
enum class Rounding : int64_t { kFloat16_b = 1, kUInt8 = 2, kInt8 = 3, kUInt16 = 6, kInt16 = 7 };
uint32_t rounded(Rounding to, uint32_t value);

// SFPCAST: an integer as sign and magnitude to float32.
uint32_t float_of_integer(uint32_t value);

// SFPLOAD and SFPSTORE of a destination that holds halves (1), bfloat16 (2) or float32 (3).
enum class Stored : int64_t { kFloat16 = 1, kFloat16_b = 2, kFloat32 = 3 };
uint32_t loaded(Stored as, uint32_t bits);
uint32_t stored(Stored as, uint32_t value);

// SFPLUT: three lines of |x| in `tables`[0] to [2], split at 1 and 2; the result takes the sign of x.
// SFPLUTFP32: six lines of |x|, split at 0.5, 1, 1.5, 2 and 3, slopes in [0] to [2] and offsets in [4] to
// [6].
uint32_t looked_up(Chip chip, bool has_six, const uint32_t* tables, uint32_t x);

// SFPARECIP (Blackhole): 1 / x to seven bits.
uint32_t approximate_reciprocal(uint32_t x);

}  // namespace loom::numerics::tensix
