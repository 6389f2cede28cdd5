// Products of half precision in float32, in one order of sums on every processor.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

namespace loom::glue {

// The result in float32, before it is rounded, of a product of dense matrices or vectors that are all of one
// dtype of half precision. Nothing: the op, named as `aten::addmm`, is none, or its sizes are empty or wrong.
std::optional<at::Tensor> sums_of_halves(std::string_view op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
