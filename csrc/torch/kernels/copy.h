#pragma once

#include <ATen/core/Tensor.h>

namespace loom::glue {

// `destination.copy_(source)` where at least one of the two is on a loom device; any dtypes, broadcasting.
at::Tensor& copy_(at::Tensor& destination, const at::Tensor& source, bool non_blocking);

}  // namespace loom::glue
