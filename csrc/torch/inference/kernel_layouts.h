// Layouts on a device that runs no kernels: those of the kernels that it lacks.
#pragma once

#include <ATen/core/stack.h>

#include "torch/ops/op.h"

namespace loom::glue {

// After the engine's shape function has taken the arguments and put the results onto the stack: lays out
// those of convolutions, which it returns contiguous, as kernels do. Where the operand or the weights have
// their channels innermost, so have all results; cuDNN's of float64 do not. Fake tensors ask the engine
// instead (torch_loom/compiler/inductor/fakes.py).
void lay_out_as_kernel(const Op& op, const torch::jit::Stack& arguments, bool is_gpu,
                       torch::jit::Stack* stack);

}  // namespace loom::glue
