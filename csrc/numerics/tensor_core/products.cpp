#include "numerics/tensor_core/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace loom::numerics::tensor_core {

Packed::Packed(bool is_left, int64_t count, int64_t num_ranges)
    : values(aligned_array<float>(count)),
      left_exponents(is_left ? aligned_array<int32_t>(count) : nullptr),
      right_exponents(is_left ? nullptr : aligned_array<int16_t>(count)),
      ranges(new Range[static_cast<size_t>(num_ranges)]) {}

Reading Reading::of(Operand operand) {
  switch (operand) {
    case Operand::kFloat16:
      return {0xFFFFE000, -14};
    case Operand::kBFloat16:
      return {0xFFFF0000, -126};
    case Operand::kTf32:
      return {0xFFFFE000, -126};
    case Operand::kE4M3:
      return {0xFFF00000, -6};
    case Operand::kE5M2:
      return {0xFFE00000, -14};
    case Operand::kE2M1:
      return {0xFFC00000, 0};
  }
  return {};
}

uint32_t bits_of(Operand operand, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (operand == Operand::kTf32) return bits;
  if (operand == Operand::kBFloat16) return bits >> 16 | (std::isnan(value) ? 0x40 : 0);
  struct Shape {
    int exponent_bits, mantissa_bits, bias;
  };
  const Shape shape = operand == Operand::kFloat16 ? Shape{5, 10, 15}
                      : operand == Operand::kE4M3  ? Shape{4, 3, 7}
                      : operand == Operand::kE5M2  ? Shape{5, 2, 15}
                                                   : Shape{2, 1, 1};
  const uint32_t sign = bits >> 31 << (shape.exponent_bits + shape.mantissa_bits);
  const uint32_t magnitude_mask = (1u << (shape.exponent_bits + shape.mantissa_bits)) - 1;
  if (std::isnan(value)) return sign | magnitude_mask;
  if (std::isinf(value)) {
    const uint32_t infinity = ((1u << shape.exponent_bits) - 1) << shape.mantissa_bits;
    return sign | (operand == Operand::kFloat16 || operand == Operand::kE5M2 ? infinity : magnitude_mask);
  }
  const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 127;
  if (exponent < -126 || (bits & 0x7FFFFFFF) == 0) return sign;
  const int least = 1 - shape.bias;
  const uint32_t significand = 0x800000 | (bits & 0x7FFFFF);
  if (exponent < least) {
    const int by = 23 - shape.mantissa_bits + least - exponent;
    return by > 31 ? sign : sign | significand >> by;
  }
  return sign | ((static_cast<uint32_t>(exponent + shape.bias) << shape.mantissa_bits) +
                 ((significand & 0x7FFFFF) >> (23 - shape.mantissa_bits)));
}

void multiply_slowly(const Product& product, int64_t row, int64_t panel, int64_t panel_width) {
  const Rule& rule = product.rule;
  const auto depth = static_cast<size_t>(product.depth);
  std::vector<uint32_t> left(depth, 0), right(depth, 0);
  for (int64_t k = 0; k < product.true_depth; ++k)
    left[static_cast<size_t>(k)] = bits_of(rule.a, product.left[row * product.true_depth + k]);
  const int64_t last = std::min(product.columns, (panel + 1) * panel_width);
  for (int64_t column = panel * panel_width; column < last; ++column) {
    for (int64_t k = 0; k < product.true_depth; ++k) {
      right[static_cast<size_t>(k)] =
          bits_of(rule.b, product.right[k * product.right_row_stride + column * product.right_column_stride]);
    }
    float& out = product.out[row * product.out_stride + column];
    const uint32_t old = rule.has_half_sums ? bits_of(Operand::kFloat16, out) : std::bit_cast<uint32_t>(out);
    const uint32_t sum = dot(rule, left.data(), 1, right.data(), 1, product.depth, old);
    if (!rule.has_half_sums) {
      out = std::bit_cast<float>(sum);
      continue;
    }
    const uint32_t field = sum >> 10 & 0x1F, mantissa = sum & 0x3FF;
    const double magnitude = field == 31  ? (mantissa != 0 ? NAN : HUGE_VAL)
                             : field == 0 ? std::ldexp(mantissa, -24)
                                          : std::ldexp(1024 + mantissa, static_cast<int>(field) - 25);
    out = static_cast<float>((sum >> 15 & 1) != 0 ? -magnitude : magnitude);
  }
}

}  // namespace loom::numerics::tensor_core
