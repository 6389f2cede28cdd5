// Nested tensors of the strided layout. Most of PyTorch's kernels for them are made of ops on their memory,
// which run on the device; those that reach into memory by themselves are lent it.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

#include "torch/core/device.h"
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/kernels/register.h"
#include "torch/kernels/registrar.h"

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

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.schema().operator_name(),
                              "' is not implemented for nested tensors of layout torch.strided on ",
                              device_name(), " devices, as it is not on the CPU: use layout=torch.jagged");
}

}  // namespace

void register_nested() {
  library(nested_key(), "_").fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
  Registrar(nested_key(), [](std::string_view op) {
    return has_name(kLent, op)
               ? torch::CppFunction::makeFromBoxedFunction<&run_boxed>()
               : torch::CppFunction::makeFromBoxedFunction<&run_as_engine<kEngineNestedOps>>();
  }).implement_all(kEngineNestedOps);
}

}  // namespace loom::glue
