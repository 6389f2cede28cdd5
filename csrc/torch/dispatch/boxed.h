// A single kernel that runs any op of the engine on loom tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "torch/loans/lend.h"

namespace loom::glue {

// Runs an op with the arguments on the stack, borrowed, and leaves its results there.
void run_boxed(const c10::OperatorHandle& handle, torch::jit::Stack* stack);
// The same for an op whose kernel only its operands' keys find, also where it has none.
void run_boxed_by_keys(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// The second half of that, for a stream that does not run it in this thread: the arguments at the end of the
// stack are lent already.
void run_lent(Op& op, torch::jit::Stack* stack, Lending& lending);
// The same for a stream that does.
void run_lent_in_place(Op& op, torch::jit::Stack* stack, Lending& lending);
// In the handler of the error that the kernel, run in this thread, has needed more memory than the device
// has: queues the op, whose results have the device's memory before it runs, or raises that there is not
// enough.
void queue_bounded(Op& op, torch::jit::Stack* stack, Lending& lending);

}  // namespace loom::glue
