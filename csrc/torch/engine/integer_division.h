// Division of whole numbers where the engine's kernels raise or end the process, and a GPU's do not.
#pragma once

#include <ATen/core/stack.h>

namespace loom::glue {

// For a kernel that divides its first argument by its second, both among the `num_arguments` at the end of
// `stack`. The least number over -1, which no register holds, is taken over 1: the quotient that a GPU gives.
// With `takes_zeros`, zeros of the divisor are taken for ones, too.
void prepare_integer_division(torch::jit::Stack& stack, size_t num_arguments, bool takes_zeros);

}  // namespace loom::glue
