// Ops whose kernel of the engine is not run as it is: CUDA's computes something else, or the engine's lacks
// what CUDA's has, or ends the process.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace loom::glue {

// Takes the arguments on the engine. Returns the results; none: the engine's kernel is to be run.
using OwnKernel = std::vector<at::Tensor> (*)(c10::ArrayRef<c10::IValue> arguments);

// Null for most ops. `name` has no overload: "aten::linalg_lu".
OwnKernel own_kernel_of(std::string_view name);

}  // namespace loom::glue
