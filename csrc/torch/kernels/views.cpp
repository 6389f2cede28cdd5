// Views share storage, so they never leave the device: PyTorch's own device-agnostic kernels serve.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "torch/core/registration.h"
#include "torch/kernels/register.h"

namespace loom::glue {

void register_views() {
  torch::Library& m = library(own_key());
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", TORCH_FN(static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view)));
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_nested_view_from_buffer", at::native::_nested_view_from_buffer);
}

}  // namespace loom::glue
