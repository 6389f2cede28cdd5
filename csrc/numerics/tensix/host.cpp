#include "numerics/tensix/host.h"

#include <algorithm>

namespace loom::numerics::tensix {

void host_block(int bits, bool has_short_exponent, const uint32_t* values, uint32_t* elements,
                uint32_t& exponent) {
  constexpr int kBlock = 16, kSignificand = 24;
  uint32_t significands[kBlock], exponents[kBlock];
  exponent = 0;
  for (int i = 0; i < kBlock; ++i) {
    int field = static_cast<int>(values[i] >> 23 & 0xFF);
    const bool is_zero = (values[i] & 0x7FFFFFFF) == 0;
    significands[i] = is_zero ? 0 : 0x800000 | (values[i] & 0x7FFFFF);
    if (has_short_exponent && !is_zero) {
      field -= 112;
      if (field > 31) {
        field = 31;
        significands[i] = 0xFFFFFF;
      } else if (field < 0) {
        field = 0;
        significands[i] = 0x800000;
      }
    }
    exponents[i] = static_cast<uint32_t>(field);
    exponent = std::max(exponent, exponents[i]);
  }
  const int dropped = kSignificand - bits;
  for (int i = 0; i < kBlock; ++i) {
    const uint32_t by = exponent - exponents[i];
    const uint32_t aligned = by > 31 ? 0 : significands[i] >> by;
    const uint32_t even = (aligned >> dropped & 1) + (1u << (dropped - 1)) - 1;
    const uint32_t magnitude = std::min((aligned + even) >> dropped, (1u << bits) - 1);
    elements[i] = magnitude == 0 ? 0 : values[i] >> 31 << bits | magnitude;
  }
}

}  // namespace loom::numerics::tensix
