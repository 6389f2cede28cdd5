// Matrix products that CUDA's libraries take for some shapes, layouts and dtypes only, where the engine takes
// all. The words are CUDA's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "runtime/chip.h"

namespace loom::glue {

// Products of int8: self, mat2.
void check_integer_product(c10::ArrayRef<c10::IValue> arguments);

// Products of float8 with scales, by either of PyTorch's signatures. `result`: where the program gives one.
void check_scaled_product(c10::ArrayRef<c10::IValue> arguments, const at::Tensor* result,
                          const runtime::Chip& chip);

}  // namespace loom::glue
