// Normalisation by the root mean square as one command, as on GPUs. Its parts are those of PyTorch's
// decompositions, in their order, so that programs compiled for the backend loom round alike.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>

#include "torch/core/optional_tensor.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

// The dimensions of `tensor` from `first` to `last`.
c10::DimVector dims_between(int64_t first, int64_t last) {
  c10::DimVector dims(static_cast<size_t>(last - first));
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

int64_t check_rms_norm_shape(const char* op, const Tensor& input, at::IntArrayRef shape) {
  const int64_t first = input.dim() - static_cast<int64_t>(shape.size());
  TORCH_CHECK(!shape.empty() && first >= 0 && input.sizes().slice(static_cast<size_t>(first)) == shape, op,
              ": normalized_shape must be the last sizes of the input, ", input.sizes(), ", got ", shape);
  return first;
}

void check_rms_norm_weight(const char* op, OptionalTensor weight, at::IntArrayRef shape) {
  TORCH_CHECK(!is_given(weight) || weight->sizes() == shape, op, ": weight must have the sizes ", shape,
              ", got ", weight->sizes());
}

void check_rms_norm_dtype(const char* op, const Tensor& input) {
  const c10::ScalarType dtype = input.scalar_type();
  const bool is_taken = c10::isComplexType(dtype) || (c10::isFloatingType(dtype) && input.element_size() > 1);
  TORCH_CHECK_NOT_IMPLEMENTED(is_taken, op, " takes a floating or complex input of 16 bits and more, got ",
                              dtype);
}

// One number for each row, as the forward pass returns them: the input's sizes, 1 where it normalises.
void check_rstd(const char* op, const Tensor& rstd, const Tensor& input, int64_t first) {
  c10::DimVector sizes(input.sizes());
  std::fill(sizes.begin() + first, sizes.end(), 1);
  const at::IntArrayRef rows = input.sizes().slice(0, static_cast<size_t>(first));
  TORCH_CHECK(rstd.sizes() == sizes || rstd.sizes() == rows, op, ": rstd must have the sizes ",
              at::IntArrayRef(sizes), ", got ", rstd.sizes());
}

Pair rms_norm(const Tensor& input, at::IntArrayRef shape, OptionalTensor weight, std::optional<double> eps) {
  const int64_t first = check_rms_norm_shape("_fused_rms_norm", input, shape);
  check_rms_norm_weight("_fused_rms_norm", weight, shape);
  check_rms_norm_dtype("_fused_rms_norm", input);
  const c10::ScalarType type = at::toOpMathType(input.scalar_type());
  const bool is_double = c10::toRealValueType(type) == at::kDouble;
  const double least =
      is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Tensor wide = input.to(type);
  const Tensor rstd = at::rsqrt(
      at::pow(wide, 2).mean(dims_between(first, input.dim()), /*keepdim=*/true).add(eps.value_or(least)));
  Tensor result = wide.mul(rstd);
  if (is_given(weight)) result = result.mul(*weight);
  return {result.contiguous().to(input.scalar_type()), rstd.contiguous()};
}

Pair rms_norm_backward(const Tensor& gradient, const Tensor& input, at::IntArrayRef shape, const Tensor& rstd,
                       OptionalTensor weight, std::array<bool, 2> wanted) {
  const int64_t first = check_rms_norm_shape("_fused_rms_norm_backward", input, shape);
  check_rms_norm_weight("_fused_rms_norm_backward", weight, shape);
  check_rms_norm_dtype("_fused_rms_norm_backward", input);
  check_rstd("_fused_rms_norm_backward", rstd, input, first);
  TORCH_CHECK(gradient.sizes() == input.sizes(),
              "_fused_rms_norm_backward: the gradient must have the sizes ", input.sizes(), ", got ",
              gradient.sizes());
  const bool wants_weight = wanted[1] && is_given(weight);
  Pair gradients;
  auto& [of_input, of_weight] = gradients;
  if (input.numel() == 0) {
    if (wanted[0]) of_input = at::zeros(input.sizes(), input.options());
    if (wants_weight) of_weight = at::zeros(shape, input.options());
    return gradients;
  }
  const c10::ScalarType type = at::toOpMathType(input.scalar_type());
  const auto widened = [&](const Tensor& tensor) { return tensor.to(type).contiguous(); };
  Tensor scale = rstd;
  while (scale.dim() < input.dim()) scale = scale.unsqueeze(-1);
  const Tensor upstream = widened(gradient), normal = widened(input).mul(scale);
  if (wanted[0]) {
    const auto items = static_cast<double>(c10::multiply_integers(shape));
    const Tensor of_normal = is_given(weight) ? upstream.mul(widened(*weight)) : upstream;
    const Tensor along = at::sum(normal.mul(of_normal), dims_between(first, input.dim()), /*keepdim=*/true);
    of_input = of_normal.sub(normal.div(items).mul(along)).mul(scale).to(input.scalar_type());
  }
  if (wants_weight) {
    Tensor of_rows = upstream.mul(normal);
    if (first > 0) of_rows = at::sum(of_rows, dims_between(0, first));
    of_weight = of_rows.to(input.scalar_type());
  }
  return gradients;
}

}  // namespace

void register_rms_norm() {
  implement_fused<&rms_norm>(
      "_fused_rms_norm",
      "(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)");
  implement_fused<&rms_norm_backward>("_fused_rms_norm_backward",
                                      "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, "
                                      "Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)");
}

}  // namespace loom::glue
