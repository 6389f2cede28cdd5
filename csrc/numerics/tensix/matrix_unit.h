// The matrix unit, one result at a time in integers: what the vector code falls back to, and what the
// instructions beside the matrix product are computed with.
#pragma once

#include <cstdint>

#include "numerics/tensix/words.h"

namespace loom::numerics::tensix {

// One result of an MVMUL: `dst` plus the sum over 16 products of b[k * b_stride] and a[k * a_stride], words
// of SrcB and SrcA, in a pass of 0 to 3. Returns the bits of the destination.
uint32_t multiply_add(const Unit& unit, int pass, const uint32_t* b, int64_t b_stride, const uint32_t* a,
                      int64_t a_stride, uint32_t dst);

enum class Elementwise : int64_t { kMultiply = 0, kAdd = 1, kSubtract = 2 };

// One result of ELWMUL, ELWADD or ELWSUB. Additions add `dst` only where they accumulate.
uint32_t elementwise(const Unit& unit, Elementwise op, int pass, bool accumulates, uint32_t a, uint32_t b,
                     uint32_t dst);

// One result of GMPOOL: the largest of 16 words of SrcA and of `dst`, which counts only where it is valid.
uint32_t largest(const Unit& unit, const uint32_t* a, int64_t a_stride, uint32_t dst, bool is_valid);

}  // namespace loom::numerics::tensix
