// Nested tensors of the strided layout. Most of PyTorch's kernels for them are made of ops on their memory,
// which run on the device; those that reach into memory by themselves are lent it.
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/nested/NestedTensorBinaryOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
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

// Each part of a nested tensor with its row of a dense tensor: CUDA has a kernel for it.
void combine_with_rows(at::Tensor& result, const at::Tensor& self, const at::Tensor& other,
                       const at::native::NESTED_DENSE_OP& op) {
  const auto* const parts = at::native::get_nested_tensor_impl(self);
  const at::Tensor firsts = parts->get_storage_offsets();
  const int64_t width = other.size(-1);
  const at::Tensor ends =
      at::cat({firsts.slice(0, 1), at::scalar_tensor(parts->numel(), firsts.options()).view({1})});
  const at::Tensor lengths = ends.sub(firsts).floor_divide(std::max<int64_t>(width, 1));
  const at::Tensor rows =
      other.reshape({other.size(0), width})
          .repeat_interleave(lengths.to(other.device()), 0, lengths.sum().item<int64_t>());
  at::Tensor out = at::native::get_nested_tensor_impl(result)->get_buffer().view_as(rows);
  const at::Tensor own = parts->get_buffer().view_as(rows);
  if (op == at::native::NESTED_DENSE_OP::ADD) {
    at::add_out(out, own, rows);
  } else {
    at::mul_out(out, own, rows);
  }
}

void register_nested_ops() {
  fall_back(nested_key(), c10::KernelFunction::makeFromBoxedFunction<&refuse>());
  Registrar(nested_key(), [](std::string_view op) {
    return has_name(kLent, op)
               ? c10::KernelFunction::makeFromBoxedFunction<&run_boxed>()
               : c10::KernelFunction::makeFromBoxedFunction<&run_as_engine<kEngineNestedOps>>();
  }).implement_all(kEngineNestedOps);
}

}  // namespace

void register_nested() {
  if (device_type() == c10::DeviceType::CUDA) {
    at::native::nested_dense_elementwise_stub.set_cuda_dispatch_ptr(&combine_with_rows);
  }
  at_first_use(register_nested_ops);
}

}  // namespace loom::glue
