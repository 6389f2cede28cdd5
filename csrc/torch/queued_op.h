// An op that runs later: on a worker, or at each replay of a graph. Its outputs are made now, from what
// earlier calls with such arguments returned.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "torch/outcome.h"

namespace loom::glue {

// Queues `op` on the current stream of the lending's device. The arguments at the end of `stack` are lent
// already; its results take their place. The caller knows that `outcome` is what such arguments lead to.
void queue_op(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t num_arguments, Lending& lending,
              std::shared_ptr<const Outcome> outcome);

// The outcome of a call that nothing was seen of, from the op's shape function; null when it has none that
// answers. Runs Python, computes nothing.
std::shared_ptr<const Outcome> infer_outcome(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                             size_t num_arguments, size_t num_returns,
                                             const Lending& lending);

}  // namespace loom::glue
