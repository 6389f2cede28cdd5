// Functions of one variable as the vector unit's programs compute them (tt-llk, April 2026): polynomials,
// Newton steps and tables over its primitives.
#pragma once

#include <cstdint>

#include "numerics/tensix/words.h"

namespace loom::numerics::tensix {

enum class Function : int64_t {
  kReciprocal = 0,
  kSqrt = 1,
  kRsqrt = 2,
  kExp = 3,
  kGelu = 4,
  kTanh = 5,
  kSigmoid = 6
};

// Whether there is a rule: Blackhole's reciprocal is a program of its own, which is not here.
bool has_function(Chip chip, Function function);

// The bits of float32 of function(x). `is_wide`: for a destination that holds float32; else the result is
// rounded to bfloat16, and cheaper programs serve.
uint32_t apply(Chip chip, Function function, bool is_wide, uint32_t x);

}  // namespace loom::numerics::tensix
