// PyTorch's C++ shape functions, `at::meta`. The dispatcher has Python ones in their place once torch is
// imported, which take the GIL and up to a millisecond.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>

namespace loom::glue {

// For tensors of the device type "meta"; invalid where the op has none.
c10::KernelFunction cpp_shape_function(std::string_view full_name);

}  // namespace loom::glue
