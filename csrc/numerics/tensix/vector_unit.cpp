#include "numerics/tensix/vector_unit.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace loom::numerics::tensix {

namespace {

constexpr uint32_t kSignBit = 0x80000000, kInfinity = 0x7F800000, kMantissa = 0x7FFFFF;

struct Number {
  uint32_t sign;
  int exponent;
  uint32_t significand;

  explicit Number(uint32_t bits)
      : sign(bits >> 31),
        exponent(static_cast<int>(bits >> 23 & 0xFF)),
        significand(exponent == 0 ? 0 : 0x800000 | (bits & kMantissa)) {}

  bool is_zero() const { return significand == 0; }
  bool is_infinite() const { return exponent == 255 && significand == 0x800000; }
  bool is_nan() const { return exponent == 255 && significand != 0x800000; }
};

constexpr int kSpare = 3;  // bits below a sum's significand; the lowest is sticky

// What is shifted out sticks, unless nothing else is left.
uint64_t aligned(uint64_t value, int by) {
  if (by >= 64) return 0;
  const uint64_t kept = value >> by;
  const bool is_inexact = (kept << by) != value;
  return kept | (kept != 0 && is_inexact ? 1 : 0);
}

// Bits of sign · magnitude · 2^(exponent - 26), rounded to nearest even; what overflows has mantissa 0.
uint32_t finished(Chip chip, uint32_t sign, uint64_t magnitude, int exponent, int& out_exponent) {
  const int excess = static_cast<int>(std::bit_width(magnitude)) - (24 + kSpare);
  exponent += excess;
  if (excess > 0) {
    // Wormhole looks at the lowest bit alone.
    const uint64_t lost = chip == Chip::kWormhole ? 1 : (uint64_t{1} << excess) - 1;
    magnitude = magnitude >> excess | ((magnitude & lost) != 0 ? 1 : 0);
  } else {
    magnitude <<= -excess;
  }
  const uint64_t rest = magnitude & 7;
  magnitude >>= kSpare;
  magnitude += rest > 4 || (rest == 4 && (magnitude & 1) != 0);
  if (magnitude >> 24 != 0) {
    magnitude >>= 1;
    ++exponent;
  }
  out_exponent = exponent;
  if (exponent <= 0) return chip == Chip::kWormhole ? 0 : sign << 31;
  if (exponent >= 255) return sign << 31 | kInfinity;
  return sign << 31 | static_cast<uint32_t>(exponent) << 23 | (static_cast<uint32_t>(magnitude) & kMantissa);
}

}  // namespace

uint32_t multiply_add(Chip chip, uint32_t a_bits, uint32_t b_bits, uint32_t c_bits) {
  const Number a(a_bits), b(b_bits), c(c_bits);
  const bool is_wormhole = chip == Chip::kWormhole;
  const uint32_t sign = a.sign ^ b.sign;
  const uint64_t whole = uint64_t{a.significand} * b.significand;
  int exponent = a.exponent + b.exponent - 127;
  const bool factor_is_nan =
      a.is_nan() || b.is_nan() || (a.is_infinite() && b.is_zero()) || (b.is_infinite() && a.is_zero());
  const bool overflows = whole != 0 && exponent + static_cast<int>(whole >> 47) >= 255;
  const bool is_infinite = a.is_infinite() || b.is_infinite() || (is_wormhole && overflows);
  const bool is_nan = factor_is_nan || c.is_nan() || (is_infinite && c.is_infinite() && sign != c.sign);
  if (is_nan && !is_wormhole) return 0x7FC00000;
  if (!is_nan) {
    if (c.is_infinite()) return c.sign << 31 | kInfinity;
    if (is_infinite) return sign << 31 | kInfinity;
  }
  if (is_nan) exponent = std::min(exponent, 255);
  const bool is_product_zero = whole == 0 || exponent < 0;
  uint32_t result = 0;
  if (is_product_zero && c.is_zero()) {
    result = is_wormhole ? 0 : (sign & c.sign) << 31;
  } else {
    // 27 bits of the product, 28 from 2 on, the lowest sticky.
    constexpr int kDropped = 20;
    uint64_t product = whole >> kDropped | ((whole & ((1u << kDropped) - 1)) != 0 ? 1 : 0);
    uint64_t added = uint64_t{c.significand} << kSpare;
    const int top = is_product_zero ? c.exponent : c.is_zero() ? exponent : std::max(exponent, c.exponent);
    product = is_product_zero ? 0 : aligned(product, top - exponent);
    added = c.is_zero() ? 0 : aligned(added, top - c.exponent);
    const int64_t sum = (sign != 0 ? -static_cast<int64_t>(product) : static_cast<int64_t>(product)) +
                        (c.sign != 0 ? -static_cast<int64_t>(added) : static_cast<int64_t>(added));
    int sum_exponent = 0;
    if (sum != 0) {
      result =
          finished(chip, sum < 0 ? 1 : 0, static_cast<uint64_t>(sum < 0 ? -sum : sum), top, sum_exponent);
    }
  }
  if (!is_nan) return result;
  // Wormhole leaves what it computed of the numbers in the NaN's mantissa.
  return (c.is_nan() ? c.sign : sign) << 31 | kInfinity | 1 | (result & kMantissa);
}

uint32_t rounded(Rounding to, uint32_t value) {
  const uint32_t sign = value & kSignBit, magnitude = value & ~kSignBit;
  if (to == Rounding::kFloat16_b) {
    if (magnitude >= kInfinity) return sign | kInfinity;
    if (magnitude < 0x800000) return 0;
    return (value + 0x8000) & 0xFFFF0000;
  }
  const bool is_signed = to == Rounding::kInt8 || to == Rounding::kInt16;
  const int width = to == Rounding::kUInt8 || to == Rounding::kInt8 ? 8 : 16;
  const uint32_t most = (1u << (is_signed ? width - 1 : width)) - 1;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t whole = 0;
  if (exponent >= 24) {
    whole = most;
  } else if (exponent >= -1) {
    const uint64_t significand = 0x800000 | (magnitude & kMantissa);
    whole = static_cast<uint32_t>(
        std::min<uint64_t>(((significand << 8) + (uint64_t{1} << (30 - exponent))) >> (31 - exponent), most));
  }
  return is_signed && whole != 0 ? sign | whole : whole;
}

uint32_t float_of_integer(uint32_t value) {
  const auto magnitude = static_cast<float>(value & ~kSignBit);
  return (value & kSignBit) | std::bit_cast<uint32_t>(magnitude);
}

uint32_t loaded(Stored as, uint32_t bits) {
  switch (as) {
    case Stored::kFloat16: {
      const uint32_t exponent = bits >> 10 & 0x1F, mantissa = (bits & 0x3FF) << 13;
      return (bits & 0x8000) << 16 | (exponent == 0 ? mantissa : (exponent + 112) << 23 | mantissa);
    }
    case Stored::kFloat16_b:
      return bits << 16;
    default:
      return bits;
  }
}

uint32_t stored(Stored as, uint32_t value) {
  if ((value & kInfinity) == 0) value &= kSignBit;
  switch (as) {
    case Stored::kFloat16: {
      const uint32_t sign = value >> 16 & 0x8000;
      const int exponent = static_cast<int>(value >> 23 & 0xFF) - 112;
      if (exponent <= 0) return sign;
      if (exponent > 31) return sign | 0x7FFF;
      return sign | static_cast<uint32_t>(exponent) << 10 | (value >> 13 & 0x3FF);
    }
    case Stored::kFloat16_b:
      return value >> 16;
    default:
      return value;
  }
}

uint32_t looked_up(Chip chip, bool has_six, const uint32_t* tables, uint32_t x) {
  const uint32_t magnitude = x & ~kSignBit;
  uint32_t slope, offset;
  if (has_six) {
    constexpr uint32_t kEnds[] = {0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000};
    int line = 0;
    while (line < 5 && magnitude >= kEnds[line]) ++line;
    const auto half = [&](uint32_t pair) {
      const uint32_t bits = line % 2 == 0 ? pair & 0xFFFF : pair >> 16;
      if ((bits & 0x7C00) == 0x7C00) return 0u;
      return (bits & 0x8000) << 16 | ((bits >> 10 & 0x1F) + 112) << 23 | (bits & 0x3FF) << 13;
    };
    slope = half(tables[line / 2]);
    offset = half(tables[4 + line / 2]);
  } else {
    const uint32_t pair = tables[magnitude < 0x3F800000 ? 0 : magnitude < 0x40000000 ? 1 : 2];
    const auto small = [](uint32_t bits) -> uint32_t {  // sign, negated exponent of 3 bits, mantissa of 4
      if (bits == 0xFF) return 0;
      return bits >> 7 << 31 | (127 - (bits >> 4 & 7)) << 23 | (bits & 0xF) << 19;
    };
    slope = small(pair >> 8 & 0xFF);
    offset = small(pair & 0xFF);
  }
  const uint32_t result = multiply_add(chip, slope, magnitude, offset);
  return has_six ? result : (result & ~kSignBit) | (x & kSignBit);
}

uint32_t approximate_reciprocal(uint32_t x) {
  const uint32_t sign = x & kSignBit;
  const int exponent = static_cast<int>(x >> 23 & 0xFF);
  if (exponent == 0) return sign | kInfinity;
  if (exponent == 255) return sign;
  const double k = x >> 16 & 0x7F;
  const auto mantissa =
      static_cast<uint32_t>(std::nearbyint((2.0 / (1.0 + (k + 0.5) / 128.0) - 1.0) * 128.0));
  const int field = 253 - exponent;
  if (field <= 0) return sign;
  return sign | static_cast<uint32_t>(field) << 23 | mantissa << 16;
}

}  // namespace loom::numerics::tensix
