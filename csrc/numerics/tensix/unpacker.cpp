#include "numerics/tensix/unpacker.h"

#include <bit>

#include "numerics/formats.h"

namespace loom::numerics::tensix {

namespace {

uint32_t word(uint32_t sign, uint32_t exponent, uint32_t mantissa) {
  return sign << 18 | (exponent & 0xFF) << 10 | mantissa;
}

// A block's element: magnitude bits with an explicit leading one. A zero with a sign is minus infinity.
uint32_t of_block(int bits, bool is_short, uint32_t element, uint32_t exponent) {
  const uint32_t sign = element >> bits & 1, magnitude = element & ((1u << bits) - 1);
  if (magnitude == 0) return sign == 0 ? 0 : is_short ? word(1, 31, 0x3FF) : word(1, 0xFF, 0);
  const int zeros = bits - static_cast<int>(std::bit_width(magnitude));
  const uint32_t mantissa = (magnitude << (zeros + 11 - bits)) & 0x3FF;
  return word(sign, (exponent - static_cast<uint32_t>(zeros)) & (is_short ? 0x1F : 0xFF), mantissa);
}

uint32_t of_float32(int64_t to, uint32_t bits) {
  const uint32_t sign = bits >> 31, exponent = bits >> 23 & 0xFF;
  if (to == 1) {
    const int field = static_cast<int>(exponent) - 112;
    if (exponent == 0 || field < 0) return word(sign, 0, 0);
    return field > 31 ? word(sign, 31, 0x3FF) : word(sign, static_cast<uint32_t>(field), bits >> 13 & 0x3FF);
  }
  if (to == kTf32) return word(sign, exponent, bits >> 13 & 0x3FF);
  return exponent == 0 ? word(sign, 0, 0) : word(sign, exponent, bits >> 13 & 0x3F8);
}

uint32_t of_eight_bits(const UnpackMode& mode, uint32_t element) {
  const uint32_t sign = element >> 7 & 1, code = element & 0x7F;
  if (mode.has_four_exponent_bits) {
    const uint32_t exponent = code >> 3, mantissa = (code & 7) << 7;
    if (exponent == 0) return word(sign, 0, mantissa);
    return word(sign, exponent + 8, code == 0x7F ? mantissa | 0x7F : mantissa);
  }
  if (mode.chip == Chip::kBlackhole && code == 0x7F) return word(sign, 31, 0x3FF);
  return word(sign, code >> 2, (code & 3) << 8);
}

}  // namespace

bool is_known_mode(const UnpackMode& mode) {
  const int64_t to = mode.to;
  if (mode.has_four_exponent_bits && (mode.chip != Chip::kBlackhole || mode.from != 10)) return false;
  switch (mode.from) {
    case 0:
      return to == 0 || to == 1 || to == kTf32 || to == 5;
    case 1:
    case 5:
    case 8:
    case kUInt16Format:
    case 10:
    case 14:
      return to == mode.from;
    case 6:
    case 7:
    case 15:
      return to == mode.from || to == 5;
    case 2:
    case 3:
    case 11:
      return to == mode.from || to == 1;
    default:
      return false;
  }
}

uint32_t unpacked(const UnpackMode& mode, uint32_t element, uint32_t exponent) {
  switch (mode.from) {
    case 0:
      return mode.to == 0 ? element : of_float32(mode.to, element);
    case 1:
      return word(element >> 15 & 1, element >> 10 & 0x1F, element & 0x3FF);
    case 5:
      return word(element >> 15 & 1, element >> 7 & 0xFF, (element & 0x7F) << 3);
    case 14: {
      if (mode.is_unsigned) return (element & 0xFF) == 0 ? 0 : word(0, 16, element & 0xFF);
      const uint32_t magnitude = element & 0x7F;
      return word(element >> 7 & 1, magnitude == 0 ? 0 : 16, magnitude);
    }
    case kUInt16Format:
      return word(element >> 15 & 1, element & 0xFF, (element >> 8 & 0x7F) << 3);
    case 10:
      return of_eight_bits(mode, element);
    case 8:
      return element;
    default:
      return of_block(magnitude_bits(static_cast<Format>(mode.from)),
                      has_short_exponent(static_cast<Format>(mode.from)), element, exponent);
  }
}

}  // namespace loom::numerics::tensix
