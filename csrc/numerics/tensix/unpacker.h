// The unpacker: from memory to a word of a source register, or to the destination.
#pragma once

#include <cstdint>

#include "numerics/tensix/words.h"

namespace loom::numerics::tensix {

struct UnpackMode {
  int64_t from, to;                     // the formats in memory and in the register
  bool is_unsigned = false;             // of Int8
  bool has_four_exponent_bits = false;  // of 8-bit floats (Blackhole)
  Chip chip = Chip::kWormhole;
};

// Whether there is a rule for the mode.
bool is_known_mode(const UnpackMode& mode);

// The word of an element, whose bits are right-aligned; `exponent` is that of its block.
uint32_t unpacked(const UnpackMode& mode, uint32_t element, uint32_t exponent);

}  // namespace loom::numerics::tensix
