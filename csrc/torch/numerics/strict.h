#pragma once

#include "torch/numerics/common.h"

namespace loom::numerics::glue {

// matmul() of contiguous float32 operands with strict sums; shapes as PyTorch's matmul takes them.
at::Tensor strict_matmul(const at::Tensor& self, const at::Tensor& other, const Precision& precision);

}  // namespace loom::numerics::glue
