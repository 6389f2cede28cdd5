// Kernels for values that CUDA defines otherwise than the CPU. What each does and its source:
// torch_loom/ops/cuda_values.py.
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// As own_kernel_of(); null under any other name of the device.
OwnKernel cuda_kernel_of(std::string_view name);

// Whether a copy has values that the two convert differently, should they occur.
bool converts_as_cuda(const at::Tensor& destination, const at::Tensor& source);

}  // namespace loom::glue
