// Kernels that replace the engine's. The engine's is not used where CUDA's gives another result, where it
// lacks a case that CUDA's has, or where it ends the process.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace loom::glue {

// Takes the arguments as tensors of the engine. Returns the results, or nothing: then the engine's kernel
// runs.
using OwnKernel = std::vector<at::Tensor> (*)(c10::ArrayRef<c10::IValue> arguments);

// Returns null for an op that the engine's kernel computes. `name` has no overload: "aten::linalg_lu".
OwnKernel own_kernel_of(std::string_view name);

}  // namespace loom::glue
