// How ATen passes a tensor that may be left out.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::glue {

using OptionalTensor = const std::optional<at::Tensor>&;

inline bool is_given(OptionalTensor tensor) { return tensor.has_value() && tensor->defined(); }

}  // namespace loom::glue
