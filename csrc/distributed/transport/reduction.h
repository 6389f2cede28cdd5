// Reductions of bytes by their dtype: result = result op operand, rounded to the dtype each time.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>

#include "distributed/operation.h"

namespace loom::distributed {

// Throws InvalidArgument where the dtype has no such reduction.
void check_reduction(Reduction reduction, c10::ScalarType dtype);
// `result` and `operand` have so many bytes and do not overlap. kAverage and kScaledSum add.
void combine(Reduction reduction, c10::ScalarType dtype, void* result, const void* operand, size_t bytes);
// Multiplies by a factor, before or after the sum.
void scale(c10::ScalarType dtype, void* data, size_t bytes, double factor);
// Divides, as an average does; integers towards zero.
void divide(c10::ScalarType dtype, void* data, size_t bytes, int divisor);

}  // namespace loom::distributed
