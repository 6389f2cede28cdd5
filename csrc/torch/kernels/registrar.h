// Kernels of ours for the ops that the engine has kernels for.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "torch/core/registration.h"

namespace loom::glue {

// The engine's own kernel, on tensors of the device: for kernels that touch no memory, or are made of ops.
template <c10::DispatchKey kEngine>
void run_as_engine(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(kEngine), stack);
}

// Registers kernels under `own` for the ops of namespace aten that have none there. `choose` gives the kernel
// of an op by its name with the overload, as "aten::sum.dim_IntList".
class Registrar {
 public:
  using Choose = c10::KernelFunction (*)(std::string_view op);

  Registrar(c10::DispatchKey own, Choose choose) : own_(own), choose_(choose) {}

  void implement(const c10::OperatorName& op) {
    const auto handle = c10::Dispatcher::singleton().findOp(op);
    if (!handle.has_value() || op.getNamespace() != "aten" || handle->hasKernelForDispatchKey(own_)) return;
    const std::string name = op.overload_name.empty() ? op.name : op.name + "." + op.overload_name;
    glue::implement(op, own_, choose_(name));
  }

  // All that the engine has kernels for under its own key.
  void implement_all(c10::DispatchKey engine) {
    for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(engine)) implement(op);
  }

 private:
  const c10::DispatchKey own_;
  const Choose choose_;
};

// Whether a list of names has one.
template <size_t kCount>
bool has_name(const char* const (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace loom::glue
