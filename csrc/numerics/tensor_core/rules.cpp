#include "numerics/tensor_core/rules.h"

#include <algorithm>
#include <bit>

namespace loom::numerics::tensor_core {

namespace {

constexpr int kZeroExponent = -126;
constexpr uint32_t kNaN = 0x7FFFFFFF, kHalfNaN = 0x7FFF;

// significand · 2^(exponent - fraction), with a sign in the significand.
struct Number {
  int64_t significand;
  int exponent;
  bool is_nan = false, is_infinite = false;
  bool is_negative = false;  // of an infinity
};

struct Layout {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;  // the highest exponent holds infinity and NaNs
  bool has_one_nan;   // all ones
};

constexpr Layout layout_of(Operand operand) {
  switch (operand) {
    case Operand::kFloat16:
      return {5, 10, 15, true, false};
    case Operand::kBFloat16:
      return {8, 7, 127, true, false};
    case Operand::kTf32:
      return {8, 10, 127, true, false};
    case Operand::kE4M3:
      return {4, 3, 7, false, true};
    case Operand::kE5M2:
      return {5, 2, 15, true, false};
    case Operand::kE2M1:
      return {2, 1, 1, false, false};
  }
  return {};
}

constexpr Layout kFloat32{8, 23, 127, true, false};

Number decoded(const Layout& layout, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << layout.mantissa_bits) - 1);
  const uint32_t field = bits >> layout.mantissa_bits & ((1u << layout.exponent_bits) - 1);
  const bool is_negative = (bits >> (layout.mantissa_bits + layout.exponent_bits) & 1) != 0;
  const uint32_t last = (1u << layout.exponent_bits) - 1;
  if (layout.has_infinity && field == last) return {0, 0, mantissa != 0, mantissa == 0, is_negative};
  if (layout.has_one_nan && field == last && mantissa == (1u << layout.mantissa_bits) - 1)
    return {0, 0, true};
  if (field == 0 && mantissa == 0) return {0, kZeroExponent};
  const int64_t significand = field == 0 ? mantissa : mantissa | 1u << layout.mantissa_bits;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - layout.bias;
  return {is_negative ? -significand : significand, exponent};
}

Number operand(Operand format, uint32_t bits) {
  return decoded(layout_of(format), format == Operand::kTf32 ? bits >> 13 : bits);
}

struct Term {
  int64_t significand;
  int exponent, fraction;
};

// Cut towards zero to a multiple of 2^(top - fraction_bits).
int64_t cut(const Term& term, int top, int fraction_bits) {
  const int shift = term.exponent - term.fraction - top + fraction_bits;
  if (shift >= 0) return term.significand * (int64_t{1} << shift);
  if (shift < -62) return 0;
  const int64_t magnitude = term.significand < 0 ? -term.significand : term.significand;
  const int64_t kept = magnitude >> -shift;
  return term.significand < 0 ? -kept : kept;
}

// sum · 2^power as float32, cut towards zero.
uint32_t float_of(int64_t sum, int power, int kept_bits) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000 : 0;
  auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int exponent = std::max(power + static_cast<int>(std::bit_width(magnitude)) - 1, -126);
  const int shift = power - exponent + kept_bits;  // to units of 2^(exponent - kept_bits)
  magnitude = shift >= 0 ? magnitude << shift : shift < -63 ? 0 : magnitude >> -shift;
  if (magnitude == 0) return sign;
  magnitude <<= 23 - kept_bits;
  if (exponent > 127) return sign | 0x7F800000;
  const bool is_normal = magnitude >> 23 != 0;
  return sign | (is_normal ? static_cast<uint32_t>(exponent + 127) << 23 : 0) |
         (static_cast<uint32_t>(magnitude) & 0x7FFFFF);
}

// sum · 2^power as an IEEE half, to nearest even.
uint32_t half_of(int64_t sum, int power) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x8000 : 0;
  auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  int exponent = std::max(power + static_cast<int>(std::bit_width(magnitude)) - 1, -14);
  const int shift = power - exponent + 10;
  if (shift >= 0) {
    magnitude <<= shift;
  } else if (shift < -63) {
    magnitude = 0;
  } else {
    const int by = -shift;
    magnitude = (magnitude + (uint64_t{1} << (by - 1)) - 1 + (magnitude >> by & 1)) >> by;
  }
  if (magnitude >> 11 != 0) {
    magnitude >>= 1;
    ++exponent;
  }
  if (exponent > 15) return sign | 0x7C00;
  const bool is_normal = magnitude >> 10 != 0;
  return sign | (is_normal ? static_cast<uint32_t>(exponent + 15) << 10 : 0) |
         (static_cast<uint32_t>(magnitude) & 0x3FF);
}

// Bits of a step's terms and the running sum.
struct Step {
  static constexpr int kMostTerms = 64;
  Term terms[kMostTerms + 1];
  int count = 0;
  bool is_nan = false, has_plus = false, has_minus = false;

  void add(const Term& term) { terms[count++] = term; }
  void add_infinity(bool is_negative) { (is_negative ? has_minus : has_plus) = true; }

  uint32_t result(const Rule& rule) const {
    if (is_nan || (has_plus && has_minus)) return rule.has_half_sums ? kHalfNaN : kNaN;
    if (has_plus) return rule.has_half_sums ? 0x7C00 : 0x7F800000;
    if (has_minus) return rule.has_half_sums ? 0xFC00 : 0xFF800000;
    int top = terms[0].exponent;
    for (int i = 1; i < count; ++i) top = std::max(top, terms[i].exponent);
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += cut(terms[i], top, rule.fraction_bits);
    const int power = top - rule.fraction_bits;
    return rule.has_half_sums ? half_of(sum, power) : float_of(sum, power, rule.kept_bits);
  }
};

Number scale_of(Scale scale, uint8_t bits) {
  if (scale == Scale::kUE8M0) return {1, static_cast<int>(bits) - 127, bits == 255};
  return decoded(layout_of(Operand::kE4M3), bits & 0x7F);
}

constexpr int fraction_of(Scale scale) { return scale == Scale::kUE4M3 ? 3 : 0; }

}  // namespace

uint32_t dot(const Rule& rule, const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride,
             int64_t depth, uint32_t c, const uint8_t* scales_a, int64_t scales_a_stride,
             const uint8_t* scales_b, int64_t scales_b_stride) {
  const Layout sums = rule.has_half_sums ? layout_of(Operand::kFloat16) : kFloat32;
  const int fraction = layout_of(rule.a).mantissa_bits + layout_of(rule.b).mantissa_bits;
  for (int64_t first = 0; first < depth; first += rule.step) {
    Step step;
    const Number old = decoded(sums, c);
    step.is_nan = old.is_nan;
    if (old.is_infinite) step.add_infinity(old.is_negative);
    step.add({old.significand, old.exponent, sums.mantissa_bits});
    for (int64_t k = first; k < first + rule.step; k += rule.exact_group) {
      Number scale{1, 0};
      int scale_fraction = 0;
      if (rule.scale != Scale::kNone) {
        const int64_t at = k / rule.scale_block;
        const Number left = scale_of(rule.scale, scales_a[at * scales_a_stride]),
                     right = scale_of(rule.scale, scales_b[at * scales_b_stride]);
        step.is_nan |= left.is_nan || right.is_nan;
        scale = {left.significand * right.significand, left.exponent + right.exponent};
        scale_fraction = 2 * fraction_of(rule.scale);
      }
      int64_t exact = 0;  // of a group, in units of 2^-fraction
      int exponent = 0;
      for (int64_t i = k; i < k + rule.exact_group; ++i) {
        const Number left = operand(rule.a, a[i * a_stride]), right = operand(rule.b, b[i * b_stride]);
        step.is_nan |= left.is_nan || right.is_nan;
        if (left.is_infinite || right.is_infinite) {
          const bool has_zero =
              (!left.is_infinite && left.significand == 0) || (!right.is_infinite && right.significand == 0);
          step.is_nan |= has_zero;
          const auto is_negative = [](const Number& number) {
            return number.is_infinite ? number.is_negative : number.significand < 0;
          };
          step.add_infinity(is_negative(left) != is_negative(right));
          continue;
        }
        const int64_t product = left.significand * right.significand;
        if (rule.exact_group == 1) {
          exact = product;
          exponent = left.exponent + right.exponent;
        } else if (product != 0) {
          exact += product << (left.exponent + right.exponent);
        }
      }
      step.add({exact * scale.significand, exponent + scale.exponent, fraction + scale_fraction});
    }
    c = step.result(rule);
  }
  return c;
}

}  // namespace loom::numerics::tensor_core
