// The default dtype, to which ops of whole numbers promote their results. It is the process's, and kernels
// ask for it when they run, which may be after the program has set another.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include "torch/inference/inferred_outputs.h"
#include "torch/ops/op.h"

namespace loom::glue {

// Makes a kernel compute as when `issued` was the default dtype, which has changed since: where results are
// promoted to it, the operands in `stack`, the op's arguments, become tensors of that dtype. Throws Error
// where a result goes to an `out` of another dtype, as the op does not say what it computes in then.
void keep_default_dtype(const Op& op, torch::jit::Stack& stack, const InferredOutputs& inferred,
                        c10::ScalarType issued);

}  // namespace loom::glue
