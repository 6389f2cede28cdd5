// What the registers of a Tensix core hold. A source register's word has 19 bits: sign (18), exponent field
// (17 to 10), mantissa (9 to 0). The destination register holds the bits of bfloat16, of a half whose
// exponent 31 is an ordinary binade, of float32, or an integer as sign and magnitude. docs/numerics.md has
// the rules.
#pragma once

#include <cstdint>

namespace loom::numerics::tensix {

enum class Chip : int64_t { kWormhole = 0, kBlackhole = 1 };

// What the destination register holds.
enum class Dst : int64_t { kFloat16_b = 0, kFloat16 = 1, kFloat32 = 2, kInt32 = 3 };

// Formats that exist in registers or memory alone, beside those of numerics/formats.h.
inline constexpr int64_t kTf32 = 4, kUInt16Format = 9, kFp8E4M3 = 26;

inline constexpr uint32_t kWordSign = 1u << 18;

// Formats whose exponent field has 5 bits.
constexpr bool has_short_words(int64_t format) {
  return format == 1 || format == 2 || format == 3 || format == 10 || format == 11 || format == kFp8E4M3;
}

constexpr bool is_integer_word(int64_t format) { return format == 14; }

// How an instruction reads the source registers and writes the destination.
struct Unit {
  bool has_short_exponent;
  uint32_t mantissa_a, mantissa_b;  // masks of the mantissa bits that are read
  Dst dst;
  Chip chip;

  bool is_integer() const { return dst == Dst::kInt32; }
  bool is_wide() const { return dst == Dst::kFloat32; }
  // What is added to a product's exponent in a pass.
  int adjustment(int pass) const {
    const int base = !has_short_exponent ? -127 : is_wide() ? 97 : -15;
    return base - (pass % 2 != 0 ? 5 : 0) - (pass >= 2 ? 7 : 0);
  }
};

constexpr uint32_t mantissa_of(int64_t format) {
  return format == kTf32 || has_short_words(format) || is_integer_word(format) ? 0x3FF : 0x3F8;
}

constexpr Unit unit_of(int64_t format_a, int64_t format_b, Dst dst, Chip chip) {
  return {has_short_words(format_a), mantissa_of(format_a), mantissa_of(format_b), dst, chip};
}

// A source word as an instruction sees it.
struct Source {
  uint32_t sign;         // 0 or 1
  int exponent;          // the field
  uint32_t significand;  // 11 bits with the leading one; 0: the operand is zero

  Source(uint32_t word, uint32_t mantissa)
      : sign(word >> 18 & 1),
        exponent(static_cast<int>(word >> 10 & 0xFF)),
        significand(exponent == 0 ? 0 : 0x400 | (word & mantissa)) {}
};

}  // namespace loom::numerics::tensix
