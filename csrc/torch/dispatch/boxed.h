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

// What was found out about a call before its arguments were lent.
struct Noted {
  bool is_counted = false;  // as a fallback
  bool waits = false;       // the host needs a value of the op's
};

// The second half of that, once the lending has its plan: the arguments at the end of the stack are lent.
// `runs_in_place`: what the lending says.
void run_lent(Op& op, torch::jit::Stack* stack, Lending& lending, bool runs_in_place, Noted noted = {});
// In the handler of the error that the kernel, run in this thread, has needed more memory than the device
// has: queues the op, whose results have the device's memory before it runs, or raises that there is not
// enough.
void queue_bounded(Op& op, torch::jit::Stack* stack, Lending& lending);

}  // namespace loom::glue
