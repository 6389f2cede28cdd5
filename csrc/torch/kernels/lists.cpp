// Ops on lists of tensors whose numbers are in one tensor: the host reads it, so it must be the host's.
#include <ATen/core/Tensor.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>

#include <vector>

#include "torch/core/registration.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using at::TensorList;

std::vector<at::Scalar> numbers_of(const Tensor& scalars, TensorList self) {
  return at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(self.size()));
}

std::vector<Tensor> addcdiv(TensorList self, TensorList first, TensorList second, const Tensor& scalars) {
  return at::_foreach_addcdiv(self, first, second, numbers_of(scalars, self));
}

void addcdiv_(TensorList self, TensorList first, TensorList second, const Tensor& scalars) {
  at::_foreach_addcdiv_(self, first, second, numbers_of(scalars, self));
}

std::vector<Tensor> addcmul(TensorList self, TensorList first, TensorList second, const Tensor& scalars) {
  return at::_foreach_addcmul(self, first, second, numbers_of(scalars, self));
}

void addcmul_(TensorList self, TensorList first, TensorList second, const Tensor& scalars) {
  at::_foreach_addcmul_(self, first, second, numbers_of(scalars, self));
}

}  // namespace

void register_lists() {
  torch::Library& m = library(own_key());
  m.impl("_foreach_addcdiv.Tensor", addcdiv);
  m.impl("_foreach_addcdiv_.Tensor", addcdiv_);
  m.impl("_foreach_addcmul.Tensor", addcmul);
  m.impl("_foreach_addcmul_.Tensor", addcmul_);
}

}  // namespace loom::glue
