#include "numerics/tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "numerics/kernels.h"
#include "numerics/scalar.h"

namespace loom::numerics {

namespace {

constexpr uint8_t kNaNExponent = 255;

// Place in the packed order of an element of a tile.
constexpr int64_t place_of(int64_t row, int64_t column) {
  const int64_t face = row / kFace * 2 + column / kFace;
  return face * kFace * kFace + row % kFace * kFace + column % kFace;
}

// Calls visit(row of the matrix, first column, count, place) for every row of a face that has elements.
template <typename Visit>
void each_block(int64_t rows, int64_t columns, int64_t tile_row, int64_t tile_column, const Visit& visit) {
  for (int64_t r = 0; r < kTile; ++r) {
    const int64_t row = tile_row * kTile + r;
    if (row >= rows) return;
    for (int64_t c = 0; c < kTile; c += kFace) {
      const int64_t column = tile_column * kTile + c;
      if (column >= columns) break;
      visit(row, column, std::min(kFace, columns - column), place_of(r, c));
    }
  }
}

template <typename T>
void put(uint8_t* bytes, int64_t index, T value) {
  std::memcpy(bytes + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

template <typename T>
T get(const uint8_t* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

int64_t saturated(double value, IntegerRange range) {
  return static_cast<int64_t>(value < range.low ? range.low : value > range.high ? range.high : value);
}

void put_integer(Format format, uint8_t* bytes, int64_t index, int64_t value) {
  switch (element_bits(format)) {
    case 8:
      return put(bytes, index, static_cast<uint8_t>(value));
    case 16:
      return put(bytes, index, static_cast<uint16_t>(value));
    default:
      return put(bytes, index, static_cast<uint32_t>(value));
  }
}

float get_integer(Format format, const uint8_t* bytes, int64_t index) {
  switch (format) {
    case Format::kInt8:
      return get<int8_t>(bytes, index);
    case Format::kInt32:
      return static_cast<float>(get<int32_t>(bytes, index));
    case Format::kRawUInt8:
      return get<uint8_t>(bytes, index);
    case Format::kRawUInt32:
      return static_cast<float>(get<uint32_t>(bytes, index));
    default:
      return get<uint16_t>(bytes, index);
  }
}

// Sign, 5-bit exponent and `mantissa_bits` of a value that a format with them holds.
uint32_t encode_small(uint32_t bits, int mantissa_bits) {
  const uint32_t sign = bits >> 31 << (5 + mantissa_bits), absolute = bits & ~scalar::kSign;
  if (absolute == 0) return sign;
  return sign | ((absolute >> (23 - mantissa_bits)) - (112u << mantissa_bits));
}

uint32_t decode_small(uint32_t code, int mantissa_bits) {
  const uint32_t sign = code >> (5 + mantissa_bits) << 31;
  const uint32_t rest = code & ((1u << (5 + mantissa_bits)) - 1);
  if (rest >> mantissa_bits == 0) return sign;
  return sign | ((rest + (112u << mantissa_bits)) << (23 - mantissa_bits));
}

constexpr uint32_t kHalfNaN = 0x7E00;

void pack_block(Format format, const float* values, int64_t block, uint8_t* bytes) {
  const int bits = magnitude_bits(format), width = bits + 1;
  uint32_t largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const uint32_t absolute = scalar::bits_of(values[i]) & ~scalar::kSign;
    largest = absolute > largest ? absolute : largest;
  }
  if (largest > scalar::kInfinity) {
    bytes[block] = kNaNExponent;
    return;
  }
  const int exponent = static_cast<int>(largest >> 23);
  const auto scale = scalar::scale_of(exponent, bits, has_short_exponent(format));
  bytes[block] = static_cast<uint8_t>(scale.is_zero ? 0 : scale.exponent);
  uint8_t* data = bytes + kTileExponents;
  for (int64_t i = 0; i < kBlock; ++i) {
    const uint32_t value = scalar::bits_of(values[i]);
    const uint32_t magnitude = scalar::magnitude_of(value & ~scalar::kSign, exponent, bits);
    const uint32_t code = (value >> 31 << bits) | magnitude;
    const int64_t bit = (block * kBlock + i) * width;
    data[bit / 8] = static_cast<uint8_t>(data[bit / 8] | code << (bit % 8));
  }
}

// Returns whether the format has the exponent.
bool unpack_block(Format format, const uint8_t* bytes, int64_t block, float* values) {
  const int bits = magnitude_bits(format), width = bits + 1;
  const uint8_t exponent = bytes[block];
  if (has_short_exponent(format) && exponent > 31 && exponent != kNaNExponent) return false;
  const uint8_t* data = bytes + kTileExponents;
  const int power = exponent - (has_short_exponent(format) ? 15 : 127) - (bits - 1);
  for (int64_t i = 0; i < kBlock; ++i) {
    const int64_t bit = (block * kBlock + i) * width;
    const uint32_t code = static_cast<uint32_t>(data[bit / 8] >> (bit % 8)) & ((1u << width) - 1);
    const uint32_t magnitude = code & ((1u << bits) - 1);
    // An exponent of 0 is that of a block of zeros, whatever its elements say, in the formats of 8 bits.
    const bool is_zero = magnitude == 0 || (exponent == 0 && !has_short_exponent(format));
    uint32_t value = is_zero ? 0 : (code >> bits << 31) | scalar::scaled(magnitude, power);
    if (exponent == kNaNExponent) value = scalar::kNaN;
    values[i] = std::bit_cast<float>(value);
  }
  return true;
}

// Returns 1 for what has no code.
int64_t pack_element(Format format, float value, int64_t index, uint8_t* bytes) {
  const uint32_t bits = scalar::bits_of(value);
  switch (format) {
    case Format::kFloat32:
      put(bytes, index, bits);
      return 0;
    case Format::kFloat16_b:
      put(bytes, index, static_cast<uint16_t>(bits >> 16));
      return 0;
    case Format::kFloat16:
      put(bytes, index,
          static_cast<uint16_t>(std::isnan(value) ? kHalfNaN | bits >> 31 << 15 : encode_small(bits, 10)));
      return 0;
    case Format::kLf8:
      if (std::isnan(value)) return 1;
      put(bytes, index, static_cast<uint8_t>(encode_small(bits, 2)));
      return 0;
    default:
      put_integer(format, bytes, index, saturated(value, integer_range(format)));
      return 0;
  }
}

float unpack_element(Format format, const uint8_t* bytes, int64_t index) {
  switch (format) {
    case Format::kFloat32:
      return get<float>(bytes, index);
    case Format::kFloat16_b:
      return std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(bytes, index)) << 16);
    case Format::kFloat16: {
      const uint32_t code = get<uint16_t>(bytes, index);
      if ((code & 0x7C00) == 0x7C00) return std::bit_cast<float>(scalar::kNaN | code >> 15 << 31);
      return std::bit_cast<float>(decode_small(code, 10));
    }
    case Format::kLf8:
      return std::bit_cast<float>(decode_small(get<uint8_t>(bytes, index), 2));
    default:
      return get_integer(format, bytes, index);
  }
}

}  // namespace

int64_t pack_tile(Format format, const Matrix& matrix, int64_t tile_row, int64_t tile_column, uint8_t* bytes,
                  Counts& counts) {
  alignas(64) float values[kTileElements] = {};
  each_block(matrix.rows, matrix.columns, tile_row, tile_column,
             [&](int64_t row, int64_t column, int64_t count, int64_t place) {
               std::memcpy(values + place, matrix.data + row * matrix.columns + column,
                           static_cast<size_t>(count) * sizeof(float));
             });
  kernels().quantize(format, Format::kInvalid, values, values, 1, kTileElements, false, counts);
  std::memset(bytes, 0, static_cast<size_t>(tile_bytes(format)));
  int64_t num_lost = 0;
  if (is_block(format)) {
    for (int64_t block = 0; block < kTileExponents; ++block)
      pack_block(format, values + block * kBlock, block, bytes);
  } else {
    for (int64_t i = 0; i < kTileElements; ++i) num_lost += pack_element(format, values[i], i, bytes);
  }
  return num_lost;
}

void pack_integer_tile(Format format, const int64_t* data, int64_t rows, int64_t columns, int64_t tile_row,
                       int64_t tile_column, uint8_t* bytes) {
  std::memset(bytes, 0, static_cast<size_t>(tile_bytes(format)));
  const auto low = static_cast<int64_t>(integer_range(format).low);
  const auto high = static_cast<int64_t>(integer_range(format).high);
  each_block(rows, columns, tile_row, tile_column,
             [&](int64_t row, int64_t column, int64_t count, int64_t place) {
               for (int64_t i = 0; i < count; ++i) {
                 const int64_t value = data[row * columns + column + i];
                 put_integer(format, bytes, place + i, std::min(std::max(value, low), high));
               }
             });
}

bool unpack_tile(Format format, const uint8_t* bytes, float* matrix, int64_t rows, int64_t columns,
                 int64_t tile_row, int64_t tile_column) {
  bool is_valid = true;
  each_block(
      rows, columns, tile_row, tile_column, [&](int64_t row, int64_t column, int64_t count, int64_t place) {
        float values[kBlock] = {};
        if (is_block(format)) {
          is_valid &= unpack_block(format, bytes, place / kBlock, values);
        } else {
          for (int64_t i = 0; i < kBlock; ++i) values[i] = unpack_element(format, bytes, place + i);
        }
        std::memcpy(matrix + row * columns + column, values, static_cast<size_t>(count) * sizeof(float));
      });
  return is_valid;
}

}  // namespace loom::numerics
