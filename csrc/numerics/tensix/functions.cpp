#include "numerics/tensix/functions.h"

#include <algorithm>
#include <bit>

#include "numerics/tensix/vector_unit.h"

namespace loom::numerics::tensix {

namespace {

constexpr uint32_t kSignBit = 0x80000000, kOne = 0x3F800000, kHalf = 0x3F000000, kInfinity = 0x7F800000,
                   kMantissa = 0x7FFFFF, kQuiet = 0x7FC00000;

constexpr uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
constexpr uint32_t negated(uint32_t value) { return value ^ kSignBit; }

// The primitives of one chip.
struct Lane {
  Chip chip;

  uint32_t mad(uint32_t a, uint32_t b, uint32_t c) const { return multiply_add(chip, a, b, c); }
  uint32_t times(uint32_t a, uint32_t b) const { return mad(a, b, 0); }
  uint32_t plus(uint32_t a, uint32_t b) const { return mad(a, kOne, b); }
};

// 1 / x: a quadratic of the mantissa, Newton steps, and the exponent by its complement, which turns 0 and
// infinity into each other.
uint32_t reciprocal(const Lane& lane, int steps, uint32_t x) {
  const uint32_t minus = kSignBit | kOne | (x & kMantissa);  // -1.m
  uint32_t y = lane.mad(bits(0.3232325017452239990234375f), minus, bits(1.4545459747314453125f));
  y = lane.mad(y, minus, bits(2.121212482452392578125f));
  const uint32_t scale = lane.times(~x & ~kMantissa, kHalf);
  for (int i = 0; i < steps; ++i) {
    const uint32_t rest = lane.mad(minus, y, kOne);
    y = lane.mad(y, rest, y);
  }
  y = lane.times(y, scale);
  return (y & ~kSignBit) | (x & kSignBit);
}

// The square root or its reciprocal: a shifted seed, a cubic step and a Newton step.
uint32_t root(const Lane& lane, bool is_reciprocal, uint32_t x) {
  uint32_t y = 0x5F1110A0 - (x >> 1);
  uint32_t xy = lane.times(x, y);
  const uint32_t c = lane.times(negated(y), xy);
  const uint32_t inner = lane.plus(bits(2.2533049f), c);
  y = lane.times(y, lane.mad(c, inner, bits(2.2825186f)));
  xy = lane.times(x, y);
  const uint32_t rest = lane.mad(negated(y), xy, kOne);
  if (is_reciprocal) {
    const bool is_end = x == 0 || x == kInfinity;
    const uint32_t half = (y & 0x7F800000) == 0 ? y : y - 0x800000;  // the exponent less one
    y = is_end ? kInfinity - x : lane.mad(rest, half, y);
  } else {
    const uint32_t half = lane.times(kHalf, xy);
    if (static_cast<int32_t>(x) < static_cast<int32_t>(kInfinity)) y = lane.mad(rest, half, xy);
  }
  return (x & kSignBit) != 0 && x != kSignBit ? kQuiet : y;
}

// Order of sign and magnitude.
bool is_below(uint32_t a, uint32_t b) {
  const auto key = [](uint32_t value) {
    const auto magnitude = static_cast<int64_t>(value & ~kSignBit);
    return (value & kSignBit) != 0 ? -magnitude - 1 : magnitude;
  };
  return key(a) < key(b);
}

// e^x for bfloat16: 2^z by the exponent, and a quadratic of the fraction (Moroz et al. 2022, exp_21f).
uint32_t exponential_short(const Lane& lane, uint32_t x) {
  uint32_t z = lane.mad(x, bits(1.4426950216293334961f), bits(127.0f));
  if (is_below(z, 0)) z = 0;
  if (is_below(bits(255.0f), z)) z = bits(255.0f);
  const int exponent = static_cast<int>(z >> 23 & 0xFF) - 127;
  const uint32_t significand = 0x800000 | (z & kMantissa);
  const uint32_t shifted = exponent >= 32 || exponent <= -32 ? 0
                           : exponent >= 0                   ? significand << exponent
                                                             : significand >> -exponent;
  const uint32_t fraction = float_of_integer(shifted & kMantissa);
  uint32_t y = lane.mad(bits(4.791750143340323e-15f), fraction, bits(7.839635491371155e-08f));
  y = lane.mad(y, fraction, bits(1.0017248f));
  return (y & ~kInfinity) | (shifted & kInfinity);
}

// e^x for float32: k and the rest of x / ln 2 (Cody and Waite), seven terms of the series.
uint32_t exponential_wide(const Lane& lane, uint32_t x) {
  const uint32_t z = lane.times(x, bits(1.4426950408889634f));
  if (!is_below(z, bits(128.0f))) return (z & ~kSignBit) > kInfinity ? kQuiet : kInfinity;
  if (!is_below(bits(-127.0f), z)) return (z & ~kSignBit) > kInfinity ? kQuiet : 0;
  constexpr uint32_t kRound = 0x4B400000;  // 2^23 + 2^22
  const uint32_t moved = lane.plus(z, kRound);
  const uint32_t k = lane.plus(moved, negated(kRound));
  const uint32_t shift = moved - kRound;
  uint32_t rest = lane.mad(k, bits(-0.693115234375f), x);
  rest = lane.mad(k, bits(-3.19461832987e-05f), rest);
  constexpr float kTerms[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
  uint32_t y = bits(1.0f / 5040.0f);
  for (const float term : kTerms) y = lane.mad(y, rest, bits(term));
  const uint32_t exponent = (y >> 23 & 0xFF) + shift;
  return (y & ~kInfinity) | (exponent & 0xFF) << 23;
}

constexpr uint32_t kTanh[8] = {0x1DFF, 0x481A, 0xFF00};
constexpr uint32_t kGelu[8] = {0x37E7322B, 0x38E138F3, 0x38003852, 0, 0xB12286D8, 0xB437B479, 0x7C00AFA4};
constexpr uint32_t kSigmoid[8] = {0x32F433D9, 0x300A318A, 0x7C002A35, 0, 0x23C89018, 0x30272BAA, 0x37FF34CC};

}  // namespace

bool has_function(Chip chip, Function function) {
  return chip == Chip::kWormhole || function != Function::kReciprocal;
}

uint32_t apply(Chip chip, Function function, bool is_wide, uint32_t x) {
  const Lane lane{chip};
  const auto stored = [&](uint32_t y) { return is_wide ? y : rounded(Rounding::kFloat16_b, y); };
  switch (function) {
    case Function::kReciprocal:
      return stored(reciprocal(lane, is_wide ? 2 : 1, x));
    case Function::kSqrt:
      return stored(root(lane, false, x));
    case Function::kRsqrt:
      return stored(root(lane, true, x));
    case Function::kExp:
      return is_wide ? exponential_wide(lane, x) : stored(exponential_short(lane, x));
    case Function::kTanh:
      return looked_up(chip, false, kTanh, x);
    case Function::kGelu:
      return lane.plus(lane.times(x, kHalf), looked_up(chip, true, kGelu, x));
    case Function::kSigmoid: {
      const uint32_t line = looked_up(chip, true, kSigmoid, x);
      return lane.plus((line & ~kSignBit) | (x & kSignBit), kHalf);
    }
  }
  return kQuiet;
}

}  // namespace loom::numerics::tensix
