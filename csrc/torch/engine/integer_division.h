// Division of whole numbers by zero: a GPU gives some value, the engine's kernels raise.
#pragma once

#include <ATen/core/stack.h>

namespace loom::glue {

// For a kernel that divides its first argument by its second, both among the `num_arguments` at the end of
// `stack`: zeros of a whole divisor are taken for ones.
void avoid_zero_divisors(torch::jit::Stack& stack, size_t num_arguments);

}  // namespace loom::glue
