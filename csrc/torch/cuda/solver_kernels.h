// Linear algebra on CUDA: which kernel of its libraries a call would take.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>

namespace loom::glue {

// What messages call the kernel, by its family in torch_loom/cuda/refusals.py. Null: the op returns, or
// raises another error, before it looks at the dtype.
const char* solver_kernel(std::string_view family, c10::ArrayRef<at::Tensor> operands,
                          c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
