// Tensors of the device without contents.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::glue {

// The kernel of aten::empty_strided.
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory);

}  // namespace loom::glue
