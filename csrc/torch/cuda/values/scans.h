// Running sums in the order in which CUDA's kernels add, so that they round as there.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda/ScanUtils.cuh); compared with an H200 and an
// H100, bit for bit (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

std::vector<at::Tensor> running_sum_in_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> running_product_in_order(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
