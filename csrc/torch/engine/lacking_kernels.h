// Ops on dtypes that CUDA has kernels for and the engine has not, and that no wider dtype stands for.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

namespace loom::glue {

// Computes an op, named as `aten::histc`, of other ops of the engine. Nothing: it is none of them.
std::optional<at::Tensor> compute_of_parts(std::string_view op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
