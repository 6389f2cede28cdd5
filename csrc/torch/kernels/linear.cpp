// The gradients of a linear layer in one call, which PyTorch has for backends that do the layer in one op.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <array>
#include <tuple>

#include "torch/core/registration.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;

// input: (…, in); grad_output: (…, out); weight: (out, in). A gradient that is not asked for is undefined.
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad_output,
                                                   const Tensor& weight, std::array<bool, 3> output_mask) {
  TORCH_CHECK(weight.dim() == 2 && input.dim() > 0 && grad_output.dim() == input.dim() &&
                  input.size(-1) == weight.size(1) && grad_output.size(-1) == weight.size(0),
              "linear_backward: input ", input.sizes(), " and grad_output ", grad_output.sizes(),
              " do not fit a weight of the shape ", weight.sizes());
  const Tensor grad_rows = grad_output.reshape({-1, weight.size(0)});
  std::tuple<Tensor, Tensor, Tensor> grads;
  if (output_mask[0]) std::get<0>(grads) = at::mm(grad_rows, weight).reshape(input.sizes());
  if (output_mask[1]) std::get<1>(grads) = at::mm(grad_rows.t(), input.reshape({-1, weight.size(1)}));
  if (output_mask[2]) std::get<2>(grads) = at::sum(grad_rows, {0});
  return grads;
}

}  // namespace

void register_linear() { library(own_key()).impl("linear_backward", linear_backward); }

}  // namespace loom::glue
