// Sums that CUDA's kernels make by atomic additions, in an order that nothing decides. Under the launch mode
// chaos it is another in each call, by the seed; in other modes, and where the program wants deterministic
// ops, it is the engine's.
//
// Source: PyTorch's notes on reproducibility, and its public kernels (aten/src/ATen/native/cuda: Indexing.cu,
// ScatterGatherKernel.cu, SummaryOps.cu).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// index_add, scatter_add, scatter_reduce by sums, put with accumulation, bincount with weights.
std::vector<at::Tensor> add_rows_in_some_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> scatter_sums_in_some_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> scatter_reduced_in_some_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> put_sums_in_some_order(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> count_weights_in_some_order(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
