// The data formats of the Tensix family, and what the kernels need to know of each.
// docs/numerics.md defines them; values of the enum are PyBuda's.
#pragma once

#include <cstdint>

namespace loom::numerics {

enum class Format : int64_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfp8 = 2,
  kBfp4 = 3,
  kFloat16_b = 5,
  kBfp8_b = 6,
  kBfp4_b = 7,
  kInt32 = 8,
  kLf8 = 10,
  kBfp2 = 11,
  kUInt16 = 12,
  kInt8 = 14,
  kBfp2_b = 15,
  kRawUInt8 = 240,
  kRawUInt16 = 241,
  kRawUInt32 = 242,
  kInvalid = 255,
};

// By which converter a value gets into a format. The number of a format with a rule is format + 256 · (rule +
// 8 · wide), where the packer's source holds float32.
enum class Rule : int64_t { kPyBuda = 0, kHost = 1, kPacker = 2, kPackerPrecise = 3, kUnpacker = 4 };

constexpr Format without_rule(int64_t format) { return static_cast<Format>(format & 0xFF); }
constexpr Rule rule_of(int64_t format) { return static_cast<Rule>(format >> 8 & 7); }
constexpr bool is_from_wide(int64_t format) { return (format >> 11 & 1) != 0; }

inline constexpr int64_t kBlock = 16;  // elements that share an exponent
inline constexpr int64_t kFace = 16, kTile = 32;
inline constexpr int64_t kTileElements = kTile * kTile;
inline constexpr int64_t kTileExponents = kTileElements / kBlock;

constexpr bool is_known(int64_t format) {
  switch (static_cast<Format>(format)) {
    case Format::kFloat32:
    case Format::kFloat16:
    case Format::kBfp8:
    case Format::kBfp4:
    case Format::kFloat16_b:
    case Format::kBfp8_b:
    case Format::kBfp4_b:
    case Format::kInt32:
    case Format::kLf8:
    case Format::kBfp2:
    case Format::kUInt16:
    case Format::kInt8:
    case Format::kBfp2_b:
    case Format::kRawUInt8:
    case Format::kRawUInt16:
    case Format::kRawUInt32:
      return true;
    case Format::kInvalid:
      return false;
  }
  return false;
}

// Magnitude bits of an element of a block format, its explicit leading one among them; 0: no block format.
constexpr int magnitude_bits(Format format) {
  switch (without_rule(static_cast<int64_t>(format))) {
    case Format::kBfp8:
    case Format::kBfp8_b:
      return 7;
    case Format::kBfp4:
    case Format::kBfp4_b:
      return 3;
    case Format::kBfp2:
    case Format::kBfp2_b:
      return 1;
    default:
      return 0;
  }
}

constexpr bool is_block(Format format) { return magnitude_bits(format) != 0; }

// Block formats whose shared exponent has 5 bits.
constexpr bool has_short_exponent(Format format) {
  format = without_rule(static_cast<int64_t>(format));
  return format == Format::kBfp8 || format == Format::kBfp4 || format == Format::kBfp2;
}

// What an integer format holds; both 0: it is no integer format.
struct IntegerRange {
  double low, high;
};

constexpr IntegerRange integer_range(Format format) {
  switch (without_rule(static_cast<int64_t>(format))) {
    case Format::kInt8:
      return {-128.0, 127.0};
    case Format::kInt32:
      return {-2147483648.0, 2147483647.0};
    case Format::kUInt16:
    case Format::kRawUInt16:
      return {0.0, 65535.0};
    case Format::kRawUInt8:
      return {0.0, 255.0};
    case Format::kRawUInt32:
      return {0.0, 4294967295.0};
    default:
      return {0.0, 0.0};
  }
}

constexpr bool is_integer(Format format) { return integer_range(format).high != 0.0; }

// Bits of an element, the shared exponent left out.
constexpr int element_bits(Format format) {
  if (is_block(format)) return magnitude_bits(format) + 1;
  switch (format) {
    case Format::kFloat32:
    case Format::kInt32:
    case Format::kRawUInt32:
      return 32;
    case Format::kFloat16:
    case Format::kFloat16_b:
    case Format::kUInt16:
    case Format::kRawUInt16:
      return 16;
    default:
      return 8;
  }
}

// Whether a converter has a rule for a format.
constexpr bool has_rule(Format format, Rule rule) {
  switch (rule) {
    case Rule::kPyBuda:
      return true;
    case Rule::kHost:
      return is_block(format);  // it makes single values as PyBuda does
    case Rule::kPacker:
    case Rule::kPackerPrecise:
      return (is_block(format) && !has_short_exponent(format)) || format == Format::kFloat32 ||
             format == Format::kFloat16_b || format == Format::kFloat16;
    case Rule::kUnpacker:
      return format == Format::kFloat32 || format == Format::kFloat16_b || format == Format::kFloat16;
  }
  return false;
}

// Bytes of a packed tile of 32 x 32 elements.
constexpr int64_t tile_bytes(Format format) {
  return kTileElements * element_bits(format) / 8 + (is_block(format) ? kTileExponents : 0);
}

// What a conversion met that its format cannot hold: infinities and NaNs, and blocks that a NaN spoiled.
struct Counts {
  int64_t values = 0, blocks = 0;

  Counts& operator+=(const Counts& other) {
    values += other.values;
    blocks += other.blocks;
    return *this;
  }
};

}  // namespace loom::numerics
