#include "numerics/tensix/matrix_unit.h"

#include <algorithm>
#include <bit>

namespace loom::numerics::tensix {

namespace {

constexpr int kSpareBits = 13;     // of a sum of products below the unit of a product
constexpr int kGroup = 8;          // products that are added exactly
constexpr int kLargestShift = 30;  // beyond it nothing is left

// A term of the last addition: value · 2^(exponent - 23) in the exponents of the destination.
struct Term {
  int64_t value;
  int exponent;
};

struct Significand {
  uint32_t sign;
  int exponent;
  uint32_t bits;  // 24 with the leading one; 0: zero
};

Significand decoded(Dst dst, uint32_t bits) {
  Significand value{};
  switch (dst) {
    case Dst::kFloat16_b:
      value = {bits >> 15 & 1, static_cast<int>(bits >> 7 & 0xFF), 0x800000 | (bits & 0x7F) << 16};
      break;
    case Dst::kFloat16:
      value = {bits >> 15 & 1, static_cast<int>(bits >> 10 & 0x1F), 0x800000 | (bits & 0x3FF) << 13};
      break;
    default:
      value = {bits >> 31, static_cast<int>(bits >> 23 & 0xFF), 0x800000 | (bits & 0x7FFFFF)};
  }
  if (value.exponent == 0) value.bits = 0;
  return value;
}

// magnitude · 2^(exponent - 23), rounded to the destination's bits, halves away from zero.
uint32_t encoded(Dst dst, uint32_t sign, uint64_t magnitude, int exponent) {
  if (magnitude == 0) return 0;
  const int kept = dst == Dst::kFloat16_b ? 8 : dst == Dst::kFloat16 ? 11 : 24;
  const int width = static_cast<int>(std::bit_width(magnitude));
  exponent += width - 24;
  if (width > kept) {
    magnitude = (magnitude + (uint64_t{1} << (width - kept - 1))) >> (width - kept);
    if (magnitude >> kept != 0) {
      magnitude >>= 1;
      ++exponent;
    }
  } else {
    magnitude <<= kept - width;
  }
  if (exponent <= 0) return 0;
  const uint32_t mantissa = static_cast<uint32_t>(magnitude) & ((1u << (kept - 1)) - 1);
  const auto field = static_cast<uint32_t>(exponent);
  switch (dst) {
    case Dst::kFloat16_b:
      return sign << 15 | (exponent >= 255 ? 0x7F80 : field << 7 | mantissa);
    case Dst::kFloat16:
      return sign << 15 | (exponent > 31 ? 0x7FFF : field << 10 | mantissa);
    default:
      return sign << 31 | (exponent >= 255 ? 0x7F800000 : field << 23 | mantissa);
  }
}

// Halves go up: those of a sum of products towards infinity, the destination's away from zero.
int64_t shifted(int64_t value, int by, bool is_dst) {
  if (by == 0) return value;
  if (by > kLargestShift) return 0;
  const int64_t half = int64_t{1} << (by - 1);
  if (!is_dst || value >= 0) return (value + half) >> by;
  return -((-value + half) >> by);
}

// Steps 2 to 6: the sum of terms and the destination.
uint32_t added(const Unit& unit, const Term* terms, int count, uint32_t dst) {
  const Significand old = decoded(unit.dst, dst);
  int exponent = old.exponent;
  for (int i = 0; i < count; ++i) exponent = std::max(exponent, terms[i].exponent);
  if (exponent <= 0) return 0;
  const bool is_short = !unit.is_wide();
  int64_t sum = 0;
  const auto add = [&](int64_t value, int from, bool is_dst) {
    value = shifted(value, exponent - from, is_dst);
    sum += is_short ? shifted(value, kSpareBits, is_dst) << kSpareBits : value;
  };
  for (int i = 0; i < count; ++i) add(terms[i].value, terms[i].exponent, false);
  add(old.sign != 0 ? -int64_t{old.bits} : int64_t{old.bits}, old.exponent, true);
  if (unit.is_wide() && unit.chip == Chip::kWormhole && sum == -1) {
    return encoded(unit.dst, 1, 1, exponent + 27);  // a fault of the chip
  }
  const uint32_t sign = sum < 0 ? 1 : 0;
  return encoded(unit.dst, sign, static_cast<uint64_t>(sum < 0 ? -sum : sum), exponent);
}

struct Product {
  int64_t value;
  int exponent;
};

Product product_of(const Unit& unit, int pass, const Source& a, const Source& b) {
  const int adjustment = unit.adjustment(pass);
  if (a.significand == 0 || b.significand == 0) return {0, std::max(adjustment, 0)};
  const uint32_t left = pass % 2 == 0 ? a.significand >> 6 : a.significand >> 1 & 0x1F;
  const uint32_t right = pass < 2 ? b.significand >> 4 : (b.significand & 0xF) << 3;
  const int64_t magnitude = int64_t{left} * right;
  return {a.sign != b.sign ? -magnitude : magnitude, a.exponent + b.exponent + adjustment};
}

Term group_of(const Unit& unit, int pass, const uint32_t* b, int64_t b_stride, const uint32_t* a,
              int64_t a_stride) {
  Product products[kGroup];
  int exponent = 0;
  for (int k = 0; k < kGroup; ++k) {
    products[k] = product_of(unit, pass, Source(a[k * a_stride], unit.mantissa_a),
                             Source(b[k * b_stride], unit.mantissa_b));
    exponent = k == 0 ? products[0].exponent : std::max(exponent, products[k].exponent);
  }
  if (exponent <= 0) return {0, 0};
  int64_t sum = 0;
  for (const Product& product : products) sum += shifted(product.value, exponent - product.exponent, true);
  return {sum << kSpareBits, exponent};
}

int64_t integer_of(uint32_t word, uint32_t mask) {
  const int64_t magnitude = word & 0x3FF & mask;
  return (word & kWordSign) != 0 ? -magnitude : magnitude;
}

int64_t integer_product(int pass, uint32_t a, uint32_t b) {
  return integer_of(a, pass % 2 == 0 ? 0xE0 : 0x1F) * integer_of(b, pass < 2 ? 0x3F0 : 0xF);
}

uint32_t added_integers(int64_t sum, uint32_t dst) {
  const int64_t magnitude = dst & 0x7FFFFFFF;
  sum += dst >> 31 != 0 ? -magnitude : magnitude;
  constexpr int64_t kMost = 0x7FFFFFFF;
  sum = std::clamp(sum, -kMost, kMost);
  return sum < 0 ? 0x80000000u | static_cast<uint32_t>(-sum) : static_cast<uint32_t>(sum);
}

}  // namespace

uint32_t multiply_add(const Unit& unit, int pass, const uint32_t* b, int64_t b_stride, const uint32_t* a,
                      int64_t a_stride, uint32_t dst) {
  if (unit.is_integer()) {
    int64_t sum = 0;
    for (int k = 0; k < 2 * kGroup; ++k) sum += integer_product(pass, a[k * a_stride], b[k * b_stride]);
    return added_integers(sum, dst);
  }
  const Term terms[] = {
      group_of(unit, pass, b, b_stride, a, a_stride),
      group_of(unit, pass, b + kGroup * b_stride, b_stride, a + kGroup * a_stride, a_stride)};
  return added(unit, terms, 2, dst);
}

uint32_t elementwise(const Unit& unit, Elementwise op, int pass, bool accumulates, uint32_t a, uint32_t b,
                     uint32_t dst) {
  if (op == Elementwise::kMultiply) {
    if (unit.is_integer()) return added_integers(integer_product(pass, a, b), dst);
    const Product product = product_of(unit, pass, Source(a, unit.mantissa_a), Source(b, unit.mantissa_b));
    const Term term =
        product.exponent <= 0 ? Term{0, 0} : Term{product.value * (1 << kSpareBits), product.exponent};
    return added(unit, &term, 1, dst);
  }
  if (!accumulates) dst = 0;
  if (op == Elementwise::kSubtract) b ^= kWordSign;
  if (unit.is_integer()) return added_integers(integer_of(a, 0x3FF) + integer_of(b, 0x3FF), dst);
  Source larger(a, unit.mantissa_a), smaller(b, unit.mantissa_b);
  if (larger.exponent < smaller.exponent ||
      (larger.exponent == smaller.exponent && larger.significand < smaller.significand)) {
    std::swap(larger, smaller);
  }
  const auto value_of = [](const Source& source) {
    return source.sign != 0 ? -int64_t{source.significand} : int64_t{source.significand};
  };
  const int apart = larger.exponent - smaller.exponent;
  const int64_t sum = value_of(larger) + (apart > 11 ? 0 : shifted(value_of(smaller), apart, true));
  int exponent = larger.exponent;
  if (unit.has_short_exponent && unit.is_wide()) exponent += exponent == 0 ? 97 : 112;
  const Term term{sum * (1 << kSpareBits), exponent};
  return added(unit, &term, 1, dst);
}

uint32_t largest(const Unit& unit, const uint32_t* a, int64_t a_stride, uint32_t dst, bool is_valid) {
  // Sign and magnitude as an integer that orders as they do, -0 below +0.
  const auto order_of = [](uint32_t bits, uint32_t sign_bit) {
    const auto magnitude = static_cast<int64_t>(bits & (sign_bit - 1));
    return (bits & sign_bit) != 0 ? -magnitude - 1 : magnitude;
  };
  int64_t most = 0;
  bool has_one = is_valid;
  const int dropped = unit.is_wide()                ? 13
                      : unit.dst == Dst::kFloat16_b ? -3
                                                    : 0;  // of the destination's bits
  if (is_valid) {
    const uint32_t word = dropped > 0 ? dst >> dropped : dst << -dropped;
    most = order_of(word, unit.dst == Dst::kFloat16 ? 0x8000 : kWordSign);
  }
  for (int k = 0; k < 2 * kGroup; ++k) {
    const uint32_t word = a[k * a_stride];
    const int64_t order = (word >> 10 & 0xFF) == 0 ? 0 : order_of(word, kWordSign);
    most = has_one ? std::max(most, order) : order;
    has_one = true;
  }
  const auto magnitude = static_cast<uint32_t>(most < 0 ? -most - 1 : most);
  const uint32_t sign = most < 0 ? 1 : 0;
  switch (unit.dst) {
    case Dst::kFloat16_b:
      return sign << 15 | magnitude >> 3;
    case Dst::kFloat16:
      return sign << 15 | magnitude;
    default:
      return sign << 31 | magnitude << 13;
  }
}

}  // namespace loom::numerics::tensix
