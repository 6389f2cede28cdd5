// Ops that leave an unmaterialised tensor on the host side (lazy.h): those that make contents, and copies to
// and from the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

namespace loom::glue {

// Runs an op that makes the contents of its one result (`makes_contents` in the op table) on the host side.
// Returns false, and leaves the stack alone, when its result is on the device or an operand is. `check` is
// called with the device before the op runs.
bool fill_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                  c10::function_ref<void(int device)> check);

// `destination.copy_(source)` where one of the two waits and the other is the host's. Returns false for other
// pairs.
bool copy_on_host(const at::Tensor& destination, const at::Tensor& source);

}  // namespace loom::glue
