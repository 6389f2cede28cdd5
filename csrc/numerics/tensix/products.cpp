#include "numerics/tensix/products.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "numerics/tensix/matrix_unit.h"

namespace loom::numerics::tensix {

Packed::Packed(bool is_left, bool has_low, int64_t count, int64_t num_ranges)
    : high(aligned_array<float>(count)),
      low(has_low ? aligned_array<float>(count) : nullptr),
      left_exponents(is_left ? aligned_array<int32_t>(count) : nullptr),
      right_exponents(is_left ? nullptr : aligned_array<int16_t>(count)),
      left_bytes(is_left ? aligned_array<int32_t>(count) : nullptr),
      right_bytes(is_left ? nullptr : aligned_array<int8_t>(count)),
      ranges(new Range[static_cast<size_t>(num_ranges)]) {}

void prepare(Product& product, const Unit& unit, int first_pass, int last_pass) {
  product.unit = unit;
  product.first_pass = first_pass;
  product.last_pass = last_pass;
  product.is_wide = unit.is_wide();
  product.has_fault = unit.is_wide() && unit.chip == Chip::kWormhole;
  const bool is_half = unit.dst == Dst::kFloat16;
  product.lowest_exponent = is_half ? kShortOffset : 0;
  product.largest_exponent = is_half ? 31 + kShortOffset : 254;
  product.overflow = is_half ? 0x47FFE000 : 0x7F800000;
  product.half_of_last = is_half ? 0x1000 : 0x8000;
  // Products, and what is left when sums of them cancel, stay above the lowest exponent.
  product.least_ample = product.lowest_exponent + kLeastTop + 39;
  product.has_exact_zeros = unit.has_short_exponent && unit.is_wide();
  product.least_byte = product.has_exact_zeros ? unit.adjustment(0) - 127 : kLeastByte;
  for (int pass = 0; pass < 4; ++pass) {
    product.offsets[pass] = -127 - (pass % 2 != 0 ? 5 : 0) - (pass >= 2 ? 7 : 0);
    // What a product of zero has.
    product.least_exponents[pass] =
        unit.has_short_exponent && unit.is_wide() ? unit.adjustment(pass) : product.lowest_exponent;
  }
}

uint32_t word_of(bool has_short_exponent, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t exponent = bits >> 23 & 0xFF;
  if (has_short_exponent)
    exponent = exponent <= kShortOffset ? 0 : std::min<uint32_t>(exponent - kShortOffset, 31);
  return bits >> 31 << 18 | exponent << 10 | (bits >> 13 & 0x3FF);
}

float value_of_word(bool has_short_exponent, uint32_t word) {
  const uint32_t exponent = word >> 10 & 0xFF, sign = (word & kWordSign) << 13;
  if (exponent == 0) return std::bit_cast<float>(sign);
  return std::bit_cast<float>(sign | (exponent + (has_short_exponent ? kShortOffset : 0)) << 23 |
                              (word & 0x3FF) << 13);
}

uint32_t dst_of(Dst dst, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dst == Dst::kFloat16_b) return bits >> 16;
  if (dst != Dst::kFloat16) return bits;
  const uint32_t exponent = bits >> 23 & 0xFF;
  if (exponent <= kShortOffset) return bits >> 16 & 0x8000;
  return (bits >> 16 & 0x8000) | std::min<uint32_t>(exponent - kShortOffset, 31) << 10 | (bits >> 13 & 0x3FF);
}

float value_of(Dst dst, uint32_t bits) {
  if (dst == Dst::kFloat16_b) return std::bit_cast<float>(bits << 16);
  if (dst != Dst::kFloat16) return std::bit_cast<float>(bits);
  const uint32_t exponent = bits >> 10 & 0x1F, sign = (bits & 0x8000) << 16;
  return std::bit_cast<float>(exponent == 0 ? sign
                                            : sign | (exponent + kShortOffset) << 23 | (bits & 0x3FF) << 13);
}

void multiply_slowly(const Product& product, int64_t row, int64_t panel, int64_t panel_width) {
  const int64_t depth = product.depth, last = std::min(product.columns, (panel + 1) * panel_width);
  const bool is_short = product.unit.has_short_exponent;
  std::vector<uint32_t> left(static_cast<size_t>(depth)), right(static_cast<size_t>(depth));
  for (int64_t k = 0; k < product.true_depth; ++k) {
    left[static_cast<size_t>(k)] = word_of(is_short, product.left[row * product.true_depth + k]);
  }
  for (int64_t column = panel * panel_width; column < last; ++column) {
    for (int64_t k = 0; k < product.true_depth; ++k) {
      right[static_cast<size_t>(k)] = word_of(
          is_short, product.right[k * product.right_row_stride + column * product.right_column_stride]);
    }
    float& out = product.out[row * product.out_stride + column];
    uint32_t dst = dst_of(product.unit.dst, out);
    for (int64_t k = 0; k < depth; k += 2 * kFaceDepth) {
      for (int pass = product.first_pass; pass < product.last_pass; ++pass) {
        for (int64_t face = k; face < std::min(depth, k + 2 * kFaceDepth); face += kFaceDepth) {
          dst = multiply_add(product.unit, pass, &left[static_cast<size_t>(face)], 1,
                             &right[static_cast<size_t>(face)], 1, dst);
        }
      }
    }
    out = value_of(product.unit.dst, dst);
  }
}

}  // namespace loom::numerics::tensix
