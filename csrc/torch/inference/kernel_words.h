// Errors on a device that runs no kernels, in the words of the kernels that it lacks.
#pragma once

#include <ATen/core/stack.h>

#include "torch/ops/op.h"

namespace loom::glue {

// For the handler of an error of the engine `meta`, whose shape functions are written in Python for the most
// part and have words of their own. Throws what PyTorch's shape function in C++ says of the arguments, which
// are the engine's, else what the host's kernel says of zeros of the same metadata, if these are small. What
// both take, and what is no refusal (a lack of memory, Ctrl-C), is rethrown as it is.
[[noreturn]] void rethrow_in_kernel_words(const Op& op, const torch::jit::Stack& arguments);

// After the engine's shape function has taken the arguments and returned `results`: raises what the host's
// kernel says of their dtypes, which few shape functions look at. It is called on zeros, once for each kind
// of call (dtypes, ranks); large operands become small ones, unless numbers among the arguments are sizes. An
// error is about dtypes if the same call with others is taken.
void refuse_dtypes_as_kernel(const Op& op, const torch::jit::Stack& arguments,
                             c10::ArrayRef<c10::IValue> results);

}  // namespace loom::glue
