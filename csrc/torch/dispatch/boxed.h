// The one kernel that runs any op of the engine on loom tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace loom::glue {

// Runs `op` with the arguments on the stack, borrowed, and leaves its results there.
void run_boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace loom::glue
