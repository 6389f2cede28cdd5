// The ops of PyTorch that are scaled dot-product attention, of tensors [batch, heads, time, width].
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymInt.h>

#include "torch/core/extension_points.h"
#include "torch/core/registration.h"
#include "torch/kernels/attention/attention_checks.h"
#include "torch/kernels/attention/attention_choice.h"
#include "torch/kernels/attention/attention_dropout.h"
#include "torch/kernels/attention/fused_attention.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::SDPBackend;
using at::Tensor;

FlashResult attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const std::optional<Tensor>& bias, double dropout_p, bool is_causal,
                      bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp, state, offset] =
      fused_attention(query, key, value, bias, dropout_p, is_causal, scale);
  const Tensor none;
  return {output,          logsumexp,          none,   none, query.sym_size(2),
          key.sym_size(2), state.select(0, 0), offset, none};
}

AttentionGradients attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                      const Tensor& value, const Tensor& bias, std::array<bool, 4> needed,
                                      const Tensor& output, const Tensor& logsumexp, const Tensor&,
                                      const Tensor&, c10::SymInt, c10::SymInt, double dropout_p,
                                      bool is_causal, const Tensor& seed, const Tensor& offset,
                                      std::optional<double> scale) {
  return fused_attention_backward(gradient, query, key, value, bias, needed[3], output, logsumexp,
                                  saved_state(seed, offset, dropout_p), dropout_p, is_causal, scale);
}

// CUDA's fused kernels, which programs also call by their names: here they are the chip's one kernel.

// Under CUDA's flash kernel the last query sees all keys.
int64_t last_sees_all(const Tensor& query, const Tensor& key, bool is_causal) {
  return is_causal ? key.size(2) - query.size(2) : 0;
}

FlashResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                            bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  check_operands(query, key, value, {}, dropout_p);
  if (is_cuda(query)) check_flash(query, key, value);
  auto [output, logsumexp, state, offset] = fused_attention(query, key, value, {}, dropout_p, is_causal,
                                                            scale, last_sees_all(query, key, is_causal));
  const Tensor none;
  return {output,
          logsumexp,
          none,
          none,
          query.sym_size(2),
          key.sym_size(2),
          state.view(at::kUInt64),
          offset.view(at::kUInt64),
          return_debug_mask && dropout_p > 0
              ? in_mask_tiles(signed_weights(query, key, dropout_p, is_causal, scale, state), query.size(2),
                              key.size(2))
              : at::empty({0}, query.options())};
}

// Where a program only wants to be warned, CUDA's kernels take the way that is faster.
void warn_of_order(const Tensor& query, const char* kernel) {
  if (at::globalContext().deterministicAlgorithmsWarnOnly() &&
      !devices().device(query.device().index()).chip().deterministic) {
    TORCH_WARN(kernel,
               " defaults to a non-deterministic algorithm. To explicitly enable determinism call "
               "torch.use_deterministic_algorithms(True, warn_only=False).");
  }
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& logsumexp, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout_p,
    bool is_causal, const Tensor& rng_state, const Tensor& unused, std::optional<double> scale) {
  check_operands(query, key, value, {}, dropout_p);
  warn_of_order(query, "Flash Attention");
  auto [dq, dk, dv, none] = fused_attention_backward(
      gradient, query, key, value, {}, false, output, logsumexp, saved_state(rng_state, unused, dropout_p),
      dropout_p, is_causal, scale, last_sees_all(query, key, is_causal));
  return {dq, dk, dv};
}

AttentionGradients efficient_by_head(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const std::optional<Tensor>& bias, bool compute_logsumexp,
                                     double dropout_p, bool is_causal, std::optional<double> scale) {
  auto [output, logsumexp, state, offset] = efficient_attention(query, key, value, bias, compute_logsumexp,
                                                                dropout_p, is_causal, scale, /*diagonal=*/0);
  return {output, logsumexp, state.select(0, 0), offset};
}

AttentionGradients efficient_by_head_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                              const Tensor& value, const Tensor& bias, const Tensor& output,
                                              const Tensor& logsumexp, const Tensor& seed,
                                              const Tensor& offset, double dropout_p,
                                              std::array<bool, 4> needed, bool is_causal,
                                              std::optional<double> scale) {
  warn_of_order(query, "Memory Efficient attention");
  if (is_cuda(query) && gradient.defined()) check_efficient_sums(logsumexp);
  return fused_attention_backward(gradient, query, key, value, bias, needed[3], output, logsumexp,
                                  saved_state(seed, offset, dropout_p), dropout_p, is_causal, scale,
                                  /*diagonal=*/0, /*is_by_time=*/true);
}

FlashResult cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                            const std::optional<Tensor>& bias, bool /*compute_logsumexp*/, double dropout_p,
                            bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  auto result = attention(query, key, value, bias, dropout_p, is_causal, return_debug_mask, scale);
  Tensor& logsumexp = std::get<1>(result);
  logsumexp = logsumexp.unsqueeze(-1);  // as cuDNN has it
  return result;
}

std::tuple<Tensor, Tensor, Tensor> cudnn_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& logsumexp, const Tensor& seed, const Tensor& offset, const Tensor& bias, const Tensor&,
    const Tensor&, c10::SymInt, c10::SymInt, double dropout_p, bool is_causal, std::optional<double> scale) {
  TORCH_CHECK(logsumexp.dim() == 4, "attention: logsumexp must be what forward returned with it, got ",
              logsumexp.sizes());
  auto [dq, dk, dv, none] = fused_attention_backward(
      gradient, query, key, value, bias, /*wants_bias=*/false, output, logsumexp.squeeze(-1),
      saved_state(seed, offset, dropout_p), dropout_p, is_causal, scale);
  return {dq, dk, dv};
}

}  // namespace

void register_attention() {
  register_attention_choice(&choose_attention);
  torch::Library& m = library(own_key());
  m.impl("_fused_sdp_choice", choose_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
  m.impl("_scaled_dot_product_flash_attention", flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  m.impl("_scaled_dot_product_cudnn_attention", cudnn_attention);
  m.impl("_scaled_dot_product_cudnn_attention_backward", cudnn_attention_backward);
  m.impl("_scaled_dot_product_efficient_attention", efficient_by_head);
  m.impl("_scaled_dot_product_efficient_attention_backward", efficient_by_head_backward);
}

}  // namespace loom::glue
