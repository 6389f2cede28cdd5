// Scaled dot-product attention: the engine's fused kernel behind the ops PyTorch has for other backends.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/dispatch/unboxed.h"

namespace loom::glue {

namespace {

using Flash = at::_ops::_scaled_dot_product_flash_attention_for_cpu;
using FlashBackward = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
               std::optional<double> scale, bool enable_gqa) {
  // The fused kernel has no gradient for the mask.
  const bool needs_mask_gradient = mask.has_value() && mask->requires_grad();
  if (needs_mask_gradient || !devices().runs_kernels()) return static_cast<int64_t>(at::SDPBackend::math);
  Lending lending("aten::_fused_sdp_choice", {});
  const at::Tensor q = lending.lend(query), k = lending.lend(key), v = lending.lend(value);
  const std::optional<at::Tensor> m = mask.has_value() ? std::optional(lending.lend(*mask)) : std::nullopt;
  const int64_t choice = at::_ops::_fused_sdp_choice::redispatch(engine_keys(), q, k, v, m, dropout_p,
                                                                 is_causal, scale, enable_gqa);
  return choice == static_cast<int64_t>(at::SDPBackend::flash_attention)
             ? static_cast<int64_t>(at::SDPBackend::overrideable)
             : choice;
}

using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                                   at::Tensor, at::Tensor, at::Tensor>;

AttentionResult attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& bias, double dropout_p, bool is_causal,
                          bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp] =
      Borrowed<Flash, false>::call(query, key, value, dropout_p, is_causal, bias, scale);
  const at::Tensor none;
  return {output, logsumexp, none, none, query.sym_size(2), key.sym_size(2), none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, std::array<bool, 4> /*needed*/, const at::Tensor& output,
    const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
    double dropout_p, bool is_causal, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  auto [dq, dk, dv] = Borrowed<FlashBackward, false>::call(
      gradient, query, key, value, output, logsumexp, dropout_p, is_causal,
      bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, scale);
  return {dq, dk, dv, at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
}

}  // namespace loom::glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &loom::glue::choose)
}  // namespace at::native
