// The packer: from the destination register to memory, sixteen elements at a time.
#pragma once

#include <cstdint>

#include "numerics/tensix/words.h"

namespace loom::numerics::tensix {

enum class Relu : int64_t { kNone = 0, kZero = 1, kMinThreshold = 2, kMaxThreshold = 3 };

// A mode is 256 where the destination holds 32 bits, 16 times the format that a value takes first, and the
// format of the result, each of them the enum's value modulo 16.
struct PackMode {
  int64_t mode;
  Relu relu = Relu::kNone;
  uint32_t threshold = 0;      // 16 bits of the source format
  bool is_unsigned = false;    // of Int8
  bool rounds_to_ten = false;  // float32 to a half by rounding (Blackhole); else the mantissa is cut
  Chip chip = Chip::kWormhole;

  bool is_wide() const { return (mode & 256) != 0; }
  int64_t source() const { return mode >> 4 & 15; }
  int64_t result() const { return mode & 15; }
};

constexpr int64_t kPackBlock = 16;

// Whether there is a rule for the mode.
bool is_known_mode(const PackMode& mode);
// Whether results are elements of blocks.
bool packs_blocks(const PackMode& mode);

// Elements as the format stores them; `exponent` is that of the block, where the format has blocks.
void pack_block(const PackMode& mode, const uint32_t* dst, uint32_t* elements, uint32_t& exponent);

// Adds results to what memory holds; false: there is no rule for the format.
bool add_to_memory(const PackMode& mode, const uint32_t* results, const uint32_t* old, uint32_t* sums);

}  // namespace loom::numerics::tensix
