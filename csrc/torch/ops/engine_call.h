// Where every way of running an op meets the engine's kernel: in place, queued, replayed, or on stand-ins.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include "torch/ops/op.h"

namespace loom::glue {

// Calls the kernel of `keys` with the arguments at the end of the stack, tensors of the engine, and leaves
// its results there. `device`: whose card a kernel of ours is; below 0 the current one's.
void call_kernel(const Op& op, c10::DispatchKeySet keys, torch::jit::Stack* stack, int device = -1);
// Calls the kernel that the operands' own keys lead to: one of them is sparse, nested or quantized.
void call_kernel_by_keys(const Op& op, torch::jit::Stack* stack);

}  // namespace loom::glue
