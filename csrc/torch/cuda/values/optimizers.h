// Whole steps of optimizers (`fused=True`) as CUDA's kernels round them.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda: fused_adam_utils.cuh, FusedSgdKernel.cu),
// which compute in float32 or float64, products fused into sums; compared with an H100, bit for bit
// (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// Of Adam, and of AdamW, whose decay is apart from the gradient.
template <bool kIsDecoupled>
std::vector<at::Tensor> adam_step(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> sgd_step(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
