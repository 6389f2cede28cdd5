// Norms of lists of tensors in the order in which CUDA's kernel for lists adds, so that they round as there.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda/ForeachReduceOp.cu, MultiTensorApply.cuh,
// block_reduce.cuh); compared with an H100, bit for bit (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// (self, order, dtype), and an out: of orders 1 and 2.
std::vector<at::Tensor> norms_of_lists(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
