#include "numerics/tensix/packer.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace loom::numerics::tensix {

namespace {

constexpr int64_t kF32 = 0, kF16 = 1, kBfp8A = 2, kBf16 = 5, kBfp8 = 6, kBfp4 = 7, kInt = 8, kU16 = 9,
                  kLf = 10, kBfp2 = 15, kI8 = 14;

constexpr bool is_block_result(int64_t format) {
  return format == kBfp8 || format == kBfp4 || format == kBfp2;
}

uint32_t without_nan(uint32_t bits) {  // of float32
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? (bits & 0x80000000) | 0x7F800000 : bits;
}

// Step 1 of 32 bits: float32, bfloat16 or, rounded, a half.
uint32_t source_of_wide(const PackMode& mode, uint32_t bits) {
  switch (mode.source()) {
    case kBf16: {
      const uint32_t kept = without_nan(bits);
      if ((kept & 0x7F800000) == 0) return 0;
      return (kept & 0x7FFFFFFF) == 0x7F800000 ? kept >> 16 : (kept + 0x8000) >> 16;
    }
    case kBfp8: {
      const uint32_t cut = without_nan(bits) >> 16;
      return (cut & 0x7F80) == 0 ? 0 : (cut + 1) & 0xFFFE;
    }
    default:
      return bits;
  }
}

uint32_t source_of_short(const PackMode& mode, uint32_t bits) {
  switch (mode.source()) {
    case kBf16:
    case kBfp8: {
      const uint32_t kept = without_nan(bits << 16) >> 16;
      if ((kept & 0x7F80) == 0) return 0;
      return mode.source() == kBf16 ? kept : (kept + 1) & 0xFFFE;
    }
    case kF16:
      return (bits & 0x7C00) == 0 ? 0 : bits;
    case kBfp8A: {
      if ((bits & 0x7C00) == 0) return 0;
      const uint32_t magnitude = bits & 0x7FFF;
      return (bits & 0x8000) | (magnitude > 0x7FF7 ? 0x7FF0 : (magnitude + 8) & 0x7FF0);
    }
    default:
      return bits;
  }
}

uint32_t rectified(const PackMode& mode, uint32_t bits, bool is_wide) {
  if (mode.relu == Relu::kNone) return bits;
  const uint32_t sign = is_wide ? bits >> 31 : bits >> 15 & 1;
  if (sign != 0) return 0;
  const uint32_t threshold = is_wide ? mode.threshold << 16 : mode.threshold;
  if (mode.relu == Relu::kMinThreshold) return bits <= threshold ? 0 : bits;
  if (mode.relu == Relu::kMaxThreshold) return std::min(bits, threshold);
  return bits;
}

// Float32 to a half whose exponent 31 is a number: the mantissa is cut, a field of 0 keeps it.
uint32_t half_of(uint32_t bits, bool rounds) {
  const uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  if (rounds) magnitude += 0x1000;
  const int exponent = static_cast<int>(magnitude >> 23) - 112;
  if (exponent < 0) return sign;
  if (exponent > 31) return sign | 0x7FFF;
  return sign | static_cast<uint32_t>(exponent) << 10 | (magnitude >> 13 & 0x3FF);
}

uint32_t float_of_half(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t sign = (bits & 0x8000) << 16;
  return exponent == 0 ? sign | (bits & 0x3FF) << 13 : sign | (exponent + 112) << 23 | (bits & 0x3FF) << 13;
}

uint32_t integer_result(const PackMode& mode, uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const bool is_negative = bits >> 31 != 0;
  if (mode.is_unsigned) return is_negative ? 0 : std::min(magnitude, 255u);
  return (is_negative ? 0x80u : 0u) | std::min(magnitude, 127u);
}

// A value of a block in steps of 2^(E - 127 - 6), 7 bits.
uint32_t aligned(uint32_t bfloat, uint32_t block_exponent) {
  const uint32_t exponent = bfloat >> 7 & 0xFF;
  if (exponent == 0 || block_exponent - exponent >= 8) return 0;
  const uint32_t significand = 0x80 | (bfloat & 0x7F), by = 1 + block_exponent - exponent;
  return std::min((significand + (1u << (by - 1))) >> by, 127u);
}

// A half in 8 bits: five exponent bits, or four whose bias is 7.
uint32_t eight_bits_of(const PackMode& mode, uint32_t half) {
  if (mode.chip == Chip::kWormhole) return half >> 8 & 0xFF;
  const uint32_t sign = half >> 8 & 0x80;
  const int exponent = static_cast<int>(half >> 10 & 0x1F) - 8;
  if (exponent <= 0) return sign;
  if (exponent > 15) return sign | 0x7F;
  return sign | static_cast<uint32_t>(exponent) << 3 | (half >> 7 & 7);
}

float flushed(uint32_t bits) {
  return std::bit_cast<float>((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}

uint32_t bfloat_sum(uint32_t added, uint32_t old) {
  const auto is_infinite = [](uint32_t bits) { return (bits & 0x7FFF) == 0x7F80; };
  if (is_infinite(added) && is_infinite(old) && added != old) return 0x7FC0;
  const float sum = flushed(added << 16) + flushed(old << 16);
  uint32_t bits = std::bit_cast<uint32_t>(sum);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7F80) == 0 ? bits & 0x8000 : bits;
}

// Of halves whose exponent 31 is a number. What leaves the exponents on either side becomes the largest.
uint32_t half_sum(uint32_t added, uint32_t old) {
  constexpr uint32_t kMost = 0x7FFF;
  const auto value_of = [](uint32_t bits) {  // in steps of 2^-25, the last bit of exponent 1: exact
    const int exponent = static_cast<int>(bits >> 10 & 0x1F);
    const int64_t magnitude = exponent == 0 ? 0 : int64_t{0x400 | (bits & 0x3FF)} << exponent;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  };
  const int64_t sum = value_of(added) + value_of(old);
  if (sum == 0) return (old >> 10 & 0x1F) >= 30 ? kMost : 0;
  const uint32_t sign = sum < 0 ? 0x8000 : 0;
  auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  int exponent = static_cast<int>(std::bit_width(magnitude)) - 11;
  if (exponent > 0) {
    const uint64_t half = (uint64_t{1} << (exponent - 1)) - 1 + (magnitude >> exponent & 1);
    magnitude = (magnitude + half) >> exponent;
    if (magnitude >> 11 != 0) {
      magnitude >>= 1;
      ++exponent;
    }
  }
  if (exponent < 0 || exponent > 31) return sign | kMost;
  if (exponent == 0) return sign;
  return sign | static_cast<uint32_t>(exponent) << 10 | (static_cast<uint32_t>(magnitude) & 0x3FF);
}

}  // namespace

bool is_known_mode(const PackMode& mode) {
  switch (mode.mode) {
    case 0x10:
    case 0x11:
    case 0x15:
    case 0x26:
    case 0x50:
    case 0x55:
    case 0x56:
    case 0x57:
    case 0x5F:
    case 0x60:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0x6F:
    case 0x99:
    case 0x100:
    case 0x101:
    case 0x105:
    case 0x106:
    case 0x107:
    case 0x10F:
    case 0x155:
    case 0x150:
    case 0x156:
    case 0x157:
    case 0x15F:
    case 0x160:
    case 0x165:
    case 0x166:
    case 0x167:
    case 0x16F:
    case 0x188:
    case 0x199:
    case 0x1EE:
      return true;
    case 0x1A:
    case 0x111:
    case 0x11A:
      return mode.chip == Chip::kBlackhole;
    default:
      return false;
  }
}

bool packs_blocks(const PackMode& mode) { return is_block_result(mode.result()); }

void pack_block(const PackMode& mode, const uint32_t* dst, uint32_t* elements, uint32_t& exponent) {
  const int64_t source = mode.source(), result = mode.result();
  uint32_t values[kPackBlock];
  // What a value is before it is converted: float32, bfloat16 or a half.
  const bool is_wide = mode.is_wide() && source == kF32;
  const bool is_half = source == kF16 || source == kBfp8A;
  for (int64_t i = 0; i < kPackBlock; ++i) {
    if (source == kI8) {
      elements[i] = integer_result(mode, dst[i]);
      continue;
    }
    if (source == kInt) {
      elements[i] = dst[i];
      continue;
    }
    if (source == kU16) {
      elements[i] = mode.is_wide() ? dst[i] >> 16 : dst[i];
      continue;
    }
    uint32_t bits = dst[i];
    if (mode.is_wide() && is_half) {
      bits = (bits & 0x7F800000) == 0 ? 0 : half_of(bits, mode.rounds_to_ten);
    } else {
      bits = mode.is_wide() ? source_of_wide(mode, bits) : source_of_short(mode, bits);
    }
    bits = rectified(mode, bits, is_wide);
    switch (result) {
      case kF32:
        bits = is_wide ? bits : is_half ? float_of_half(bits) : bits << 16;
        break;
      case kF16:
        bits = is_wide ? half_of(bits, false) : is_half ? bits : half_of(bits << 16, false);
        break;
      case kLf:
        bits = eight_bits_of(mode, is_half ? bits : half_of(is_wide ? bits : bits << 16, false));
        break;
      default:  // bfloat16, of which blocks are made
        bits = is_wide ? bits >> 16 : is_half ? float_of_half(bits) >> 16 : bits;
    }
    values[i] = elements[i] = bits;
  }
  if (!is_block_result(result)) return;
  exponent = 0;
  for (const uint32_t value : values) exponent = std::max(exponent, value >> 7 & 0xFF);
  const int dropped = result == kBfp8 ? 0 : result == kBfp4 ? 4 : 6;
  for (int64_t i = 0; i < kPackBlock; ++i) {
    const uint32_t magnitude = aligned(values[i], exponent) >> dropped;
    elements[i] = magnitude == 0 ? 0 : (values[i] >> 15 & 1) << (7 - dropped) | magnitude;
  }
}

bool add_to_memory(const PackMode& mode, const uint32_t* results, const uint32_t* old, uint32_t* sums) {
  const int64_t format = mode.result();
  if (format != kF32 && format != kF16 && format != kBf16) return false;
  for (int64_t i = 0; i < kPackBlock; ++i) {
    if (format == kF32) {
      const float sum = flushed(results[i]) + flushed(old[i]);
      sums[i] = std::isnan(sum) ? 0x7FC00000 : std::bit_cast<uint32_t>(flushed(std::bit_cast<uint32_t>(sum)));
    } else {
      sums[i] = format == kBf16 ? bfloat_sum(results[i], old[i]) : half_sum(results[i], old[i]);
    }
  }
  return true;
}

}  // namespace loom::numerics::tensix
