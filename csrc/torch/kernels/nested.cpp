// Nested tensors of the strided layout. Most of PyTorch's kernels for them are made of ops on their memory,
// which run on the device; those that reach into memory by themselves are lent it.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>

#include "torch/core/device.h"
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

constexpr const char* kLent[] = {
    "aten::_nested_from_padded_and_nested_example",
    "aten::_nested_sum_backward",
    "aten::_nested_tensor_softmax_with_shape",
    "aten::_transform_bias_rescale_qkv",
    "aten::native_layer_norm",
    "aten::native_layer_norm_backward",
    "aten::sum.dim_IntList",
};

void in_parts(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(kEngineNestedOps), stack);
}

void run_lent_nested(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_boxed(op, stack); }

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.schema().operator_name(),
                              "' is not implemented for nested tensors of layout torch.strided on ",
                              device_name(), " devices, as it is not on the CPU: use layout=torch.jagged");
}

}  // namespace

void register_nested() {
  library(nested_key(), "_").fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
  torch::Library& m = library(nested_key());
  for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(kEngineNestedOps)) {
    if (op.getNamespace() != "aten") continue;
    const std::string full = op.overload_name.empty() ? op.name : op.name + "." + op.overload_name;
    const bool is_lent = std::find(std::begin(kLent), std::end(kLent), full) != std::end(kLent);
    m.impl(full.c_str(), is_lent ? torch::CppFunction::makeFromBoxedFunction<&run_lent_nested>()
                                 : torch::CppFunction::makeFromBoxedFunction<&in_parts>());
  }
}

}  // namespace loom::glue
