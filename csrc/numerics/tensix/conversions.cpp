#include "numerics/tensix/conversions.h"

#include <algorithm>
#include <bit>

#include "numerics/scalar.h"
#include "numerics/tensix/host.h"
#include "numerics/tensix/packer.h"
#include "numerics/tensix/products.h"
#include "numerics/tensix/unpacker.h"

namespace loom::numerics::tensix {

namespace {

// What PyBuda's format is called in a packer's mode.
int64_t result_of(Format format) { return static_cast<int64_t>(format) & 15; }

PackMode mode_of(Format format, Rule rule, bool is_wide) {
  if (format == Format::kFloat16) return {is_wide ? 0x101 : 0x11};
  int64_t source = is_wide ? 0 : 5;
  if (is_block(format) && rule == Rule::kPacker) source = 6;
  if (format == Format::kFloat16_b) source = 5;
  return {(is_wide ? 256 : 0) | source << 4 | result_of(format)};
}

// The bits of a destination of 16 bits, rounded, halves away from zero.
uint32_t to_short(bool is_half, uint32_t bits) {
  const uint32_t sign = bits & 0x80000000, magnitude = bits & 0x7FFFFFFF;
  if (!is_half)
    return magnitude >= 0x7F800000 ? bits >> 16 | (magnitude > 0x7F800000 ? 1 : 0) : (bits + 0x8000) >> 16;
  return dst_of(Dst::kFloat16, std::bit_cast<float>(sign | (std::min(magnitude, 0x7F000000u) + 0x1000)));
}

// ±magnitude · 2^(exponent - bias - (bits - 1)), infinite where float32 has no more.
float value_of_element(int bits, bool is_short, uint32_t exponent, uint32_t element) {
  const uint32_t magnitude = element & ((1u << bits) - 1), sign = element >> bits << 31;
  if (magnitude == 0) return 0.0f;
  const int power = static_cast<int>(exponent) - (is_short ? 15 : 127) - (bits - 1);
  if (power + static_cast<int>(std::bit_width(magnitude)) - 1 > 127)
    return std::bit_cast<float>(sign | 0x7F800000);
  return std::bit_cast<float>(sign | scalar::scaled(magnitude, power));
}

uint32_t unpacked_bits(Format format, uint32_t bits) {
  const int64_t to = format == Format::kFloat32 ? kTf32 : static_cast<int64_t>(format);
  const uint32_t word = unpacked({0, to}, bits, 0);
  return std::bit_cast<uint32_t>(value_of_word(format == Format::kFloat16, word));
}

// Up to sixteen values.
void convert_block(Format format, Rule rule, bool is_wide, const float* in, float* out, int64_t count) {
  uint32_t values[kPackBlock] = {}, elements[kPackBlock], exponent = 0;
  for (int64_t i = 0; i < count; ++i) values[i] = std::bit_cast<uint32_t>(in[i]);
  const int bits = magnitude_bits(format);
  const bool is_half = format == Format::kFloat16;
  if (rule == Rule::kUnpacker) {
    for (int64_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(unpacked_bits(format, values[i]));
    return;
  }
  if (rule == Rule::kHost) {
    host_block(bits, has_short_exponent(format), values, elements, exponent);
  } else {
    if (!is_wide) {
      for (uint32_t& value : values) value = to_short(is_half, value);
    }
    pack_block(mode_of(format, rule, is_wide), values, elements, exponent);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (bits != 0) {
      out[i] = value_of_element(bits, has_short_exponent(format), exponent, elements[i]);
    } else if (format == Format::kFloat32) {
      out[i] = std::bit_cast<float>(elements[i]);
    } else {
      out[i] = value_of(is_half ? Dst::kFloat16 : Dst::kFloat16_b, elements[i]);
    }
  }
}

}  // namespace

void convert(Format format, Rule rule, bool is_wide, const float* in, float* out, int64_t rows,
             int64_t columns, Counts& counts) {
  const bool keeps_nonfinite = format == Format::kFloat32 || format == Format::kFloat16_b;
  for (int64_t row = 0; row < rows; ++row, in += columns, out += columns) {
    for (int64_t i = 0; i < columns; i += kBlock) {
      const int64_t count = std::min(kBlock, columns - i);
      if (!keeps_nonfinite) {
        for (int64_t j = 0; j < count; ++j)
          counts.values += (scalar::bits_of(in[i + j]) & ~scalar::kSign) >= scalar::kInfinity;
      }
      convert_block(format, rule, is_wide, in + i, out + i, count);
    }
  }
}

}  // namespace loom::numerics::tensix
