// tt-metal's conversion of weights on the host, a rule of its own: neither the packer's nor PyBuda's.
#pragma once

#include <cstdint>

namespace loom::numerics::tensix {

// Sixteen float32 as elements of a block with `bits` magnitude bits (7, 3, 1) and an exponent of 8 or 5 bits.
// What alignment shifts out is forgotten, then halves go to even.
void host_block(int bits, bool has_short_exponent, const uint32_t* values, uint32_t* elements,
                uint32_t& exponent);

}  // namespace loom::numerics::tensix
