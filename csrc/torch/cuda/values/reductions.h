// Sums in the order in which CUDA's kernels add, so that they round as there.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda: Reduce.cuh, ReduceSumProdKernel.cu,
// ReduceMomentKernel.cu, ReduceNormKernel.cu); compared with an H200 and an H100, bit for bit
// (tests/cuda/test_card_values.py).
#pragma once

#include "runtime/chip.h"
#include "torch/engine/own_kernels.h"

namespace loom::glue {

std::vector<at::Tensor> sum_in_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> sum_of_numbers_in_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> mean_in_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> product_in_order(c10::ArrayRef<c10::IValue> arguments);
// (self, order, dims, keepdim, dtype), and an out: of orders 0, 1 and 2.
std::vector<at::Tensor> norm_in_order(c10::ArrayRef<c10::IValue> arguments);
// (self, dims, correction, keepdim), and outs.
template <bool kIsRoot, bool kHasMean>
std::vector<at::Tensor> variance_in_order(c10::ArrayRef<c10::IValue> arguments);

// (grad, output, dim, input_dtype): the gradient of rows that are too long to add one element after another.
std::vector<at::Tensor> log_softmax_gradient(c10::ArrayRef<c10::IValue> arguments);
bool is_long_row(const at::Tensor& grad, int64_t dim);

// The cores of the card whose order it is; null where the chip is none of NVIDIA's.
const runtime::RandomGrid* adding_grid();
// Whether sums of this dtype depend on their order; whether it has 16 bits, so that they are added in
// float32.
bool is_summed(c10::ScalarType type);
bool is_narrow(c10::ScalarType type);
// The dtype that is added: that at `place` of the arguments, else of the `out` behind it, else of the
// operand.
c10::ScalarType dtype_of_sum(c10::ArrayRef<c10::IValue> arguments, size_t place);

}  // namespace loom::glue
