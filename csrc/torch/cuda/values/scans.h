// Running sums in the order in which CUDA's kernels add, so that they round as there.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda/ScanUtils.cuh); compared with an H200 and an
// H100, bit for bit (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// Of a contiguous tensor of floating point, along a dimension, in its own dtype; all dimensions together have
// more than one row, as one row alone is scanned by another kernel, whose order depends on which blocks are
// first.
at::Tensor running_sum_of_rows(const at::Tensor& self, int64_t dim);

std::vector<at::Tensor> running_sum_in_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> running_product_in_order(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
