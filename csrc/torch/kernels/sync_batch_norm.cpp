// Batch normalisation over several devices: each normalises its part of the batch with the statistics of all.
// PyTorch has these ops for accelerators only; here each is one command made of the engine's ops. Statistics
// have the type in which half precision is summed.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>

#include <string>
#include <tuple>
#include <utility>

#include "torch/core/optional_tensor.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;

c10::ScalarType wide_type(const Tensor& input) { return at::toOpMathType(input.scalar_type()); }

// All dimensions but the channels'.
c10::DimVector reduced_dims(const Tensor& input) {
  c10::DimVector dims;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

// One number a channel, so that it multiplies a batch.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  c10::DimVector sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.to(wide_type(input)).view(sizes);
}

void check_batch(const Tensor& input, const char* op) {
  TORCH_CHECK(input.dim() >= 2, op, ": input must be [batch, channels, ...], but has ", input.dim(),
              " dimensions");
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  check_batch(input, "batch_norm_stats");
  auto [var, mean] = at::var_mean(input.to(wide_type(input)), reduced_dims(input), /*correction=*/0);
  return {mean, at::rsqrt(var.add(eps))};
}

Tensor elemt(const Tensor& input, OptionalTensor weight, OptionalTensor bias, const Tensor& mean,
             const Tensor& invstd, double /*eps*/) {
  check_batch(input, "batch_norm_elemt");
  Tensor out = input.to(wide_type(input)).sub(per_channel(mean, input)).mul_(per_channel(invstd, input));
  if (is_given(weight)) out.mul_(per_channel(*weight, input));
  if (is_given(bias)) out.add_(per_channel(*bias, input));
  return out.to(input.scalar_type());
}

// mean, invstd: [parts, channels]; counts: the elements of each part.
std::tuple<Tensor, Tensor> gather_with_counts(const Tensor& /*input*/, const Tensor& mean,
                                              const Tensor& invstd, OptionalTensor running_mean,
                                              OptionalTensor running_var, double momentum, double eps,
                                              const Tensor& counts) {
  const Tensor weights = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor total = weights.sum();
  const Tensor all_mean = mean.mul(weights).sum(0).div(total);
  const Tensor variances = invstd.pow(-2).sub(eps).add(mean.sub(all_mean).square());
  const Tensor squares = variances.mul(weights).sum(0);
  if (is_given(running_mean)) running_mean->mul_(1 - momentum).add_(all_mean.mul(momentum));
  if (is_given(running_var)) {
    running_var->mul_(1 - momentum).add_(squares.div(total.sub(1)).mul(momentum));
  }
  return {all_mean, at::rsqrt(squares.div(total).add(eps))};
}

std::tuple<Tensor, Tensor> gather(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                  OptionalTensor running_mean, OptionalTensor running_var, double momentum,
                                  double eps, int64_t count) {
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& gradient, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           OptionalTensor weight, bool wants_input,
                                                           bool wants_weight, bool wants_bias) {
  check_batch(input, "batch_norm_backward_reduce");
  const c10::ScalarType wide = wide_type(input);
  const Tensor upstream = gradient.to(wide);
  const Tensor centered = input.to(wide).sub(per_channel(mean, input));
  const c10::DimVector dims = reduced_dims(input);
  const Tensor sum = upstream.sum(dims), product = upstream.mul(centered).sum(dims);
  const c10::ScalarType narrow = is_given(weight) ? weight->scalar_type() : input.scalar_type();
  return {wants_input ? sum : Tensor(), wants_input ? product : Tensor(),
          wants_weight ? product.mul(invstd).to(narrow) : Tensor(),
          wants_bias ? sum.to(narrow, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

Tensor backward_elemt(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      OptionalTensor weight, const Tensor& sum, const Tensor& product, const Tensor& counts) {
  check_batch(input, "batch_norm_backward_elemt");
  const c10::ScalarType wide = wide_type(input);
  const Tensor total = counts.sum().to(wide);
  const Tensor slope = invstd.square().mul(product).div(total);
  const Tensor centered = input.to(wide).sub(per_channel(mean, input));
  Tensor result = gradient.to(wide)
                      .sub(per_channel(sum.div(total), input))
                      .sub_(centered.mul_(per_channel(slope, input)))
                      .mul_(per_channel(invstd, input));
  if (is_given(weight)) result.mul_(per_channel(*weight, input));
  return result.to(input.scalar_type());
}

Tensor& elemt_out(const Tensor& input, OptionalTensor weight, OptionalTensor bias, const Tensor& mean,
                  const Tensor& invstd, double eps, Tensor& out) {
  at::native::resize_output(out, input.sizes());
  return out.copy_(Fused<&elemt>::call(input, weight, bias, mean, invstd, eps));
}

}  // namespace

void register_sync_batch_norm() {
  implement_fused<&stats>("batch_norm_stats", "(Tensor input, float eps) -> (Tensor, Tensor)");
  implement_fused<&elemt>(
      "batch_norm_elemt",
      "(Tensor input, Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd, float eps) -> Tensor");
  implement_fused<&gather>("batch_norm_gather_stats",
                           "(Tensor input, Tensor mean, Tensor invstd, Tensor(a!)? running_mean, Tensor(b!)? "
                           "running_var, float momentum, float eps, int count) -> (Tensor, Tensor)");
  implement_fused<&gather_with_counts>(
      "batch_norm_gather_stats_with_counts",
      "(Tensor input, Tensor mean, Tensor invstd, Tensor(a!)? running_mean, Tensor(b!)? running_var, float "
      "momentum, float eps, Tensor counts) -> (Tensor, Tensor)");
  implement_fused<&backward_reduce>(
      "batch_norm_backward_reduce",
      "(Tensor grad_out, Tensor input, Tensor mean, Tensor invstd, Tensor? weight, bool "
      "input_g, bool weight_g, bool bias_g) -> (Tensor, Tensor, Tensor, Tensor)");
  implement_fused<&backward_elemt>(
      "batch_norm_backward_elemt",
      "(Tensor grad_out, Tensor input, Tensor mean, Tensor invstd, Tensor? weight, Tensor "
      "sum_dy, Tensor sum_dy_xmu, Tensor count) -> Tensor");
  library(own_key()).impl("batch_norm_elemt.out", elemt_out);
}

}  // namespace loom::glue
