// Scaled dot-product attention: the chip's fused kernel behind the ops PyTorch has for other backends.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/SymInt.h>

#include "torch/core/extension_points.h"
#include "torch/engine/fused.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::SDPBackend;
using at::Tensor;

// Only what a call's metadata says counts: a dry run takes the same way.
bool is_shaped_for_fused(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, bool is_causal, bool enable_gqa) {
  if (query.is_nested() || key.is_nested() || value.is_nested()) return false;
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  const c10::ScalarType dtype = query.scalar_type();
  if (!at::isFloatingType(dtype) || key.scalar_type() != dtype || value.scalar_type() != dtype) return false;
  // Sizes are symbols while a program with dynamic shapes is traced.
  if (query.sym_numel() == 0 || key.sym_numel() == 0 || value.sym_numel() == 0) return false;
  const c10::SymInt heads = query.sym_size(1), shared = key.sym_size(1);
  const bool fits = key.sym_size(0) == query.sym_size(0) && value.sym_size(0) == query.sym_size(0) &&
                    value.sym_size(1) == shared && key.sym_size(2) == value.sym_size(2) &&
                    key.sym_size(3) == query.sym_size(3) &&
                    (enable_gqa ? heads % shared == 0 : heads == shared);
  if (!fits || !mask.has_value() || !mask->defined()) return fits;
  if (is_causal || (mask->dim() != 2 && mask->dim() != 4)) return false;
  const std::array<c10::SymInt, 4> scores = {query.sym_size(0), heads, query.sym_size(2), key.sym_size(2)};
  for (int64_t from_end = 1; from_end <= mask->dim(); ++from_end) {
    const c10::SymInt size = mask->sym_size(-from_end);
    if (size != 1 && size != scores[4 - from_end]) return false;
  }
  return true;
}

// CUDA's fused kernels read rows of consecutive elements: anything else takes the way of plain ops there.
bool has_contiguous_rows(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask) {
  const auto is_row = [](const Tensor& tensor) { return tensor.sym_stride(-1) == 1; };
  const bool has_mask = mask.has_value() && mask->defined();
  return is_row(query) && is_row(key) && is_row(value) && (!has_mask || is_row(*mask));
}

bool has_kernel(const Tensor& query, bool has_mask, double dropout_p) {
  using runtime::FusedKernel;
  return chip_has(FusedKernel::kAttention, query) &&
         (!has_mask || chip_has(FusedKernel::kAttentionMask, query)) &&
         (dropout_p == 0 || chip_has(FusedKernel::kAttentionDropout, query));
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
               double dropout_p, bool is_causal, std::optional<double> /*scale*/, bool enable_gqa) {
  const at::Context& context = at::globalContext();
  // A program that asks for one of CUDA's fused kernels by name means this one.
  const bool may_fuse = context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() ||
                        context.userEnabledCuDNNSDP() || context.userEnabledOverrideableSDP();
  const bool has_mask = mask.has_value() && mask->defined();
  if (may_fuse && has_kernel(query, has_mask, dropout_p) &&
      is_shaped_for_fused(query, key, value, mask, is_causal, enable_gqa) &&
      (chip_has(runtime::FusedKernel::kAttentionStrides, query) ||
       has_contiguous_rows(query, key, value, mask))) {
    return static_cast<int64_t>(SDPBackend::overrideable);
  }
  return static_cast<int64_t>(context.userEnabledMathSDP() ? SDPBackend::math : SDPBackend::error);
}

// Output, log Σ exp of the scores, and the seed of dropout.
// Not inlined: GCC 12 takes the empty optional's contents for used.
[[gnu::noinline]] std::optional<at::Generator> by_default() { return std::nullopt; }

std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const std::optional<Tensor>& bias, double dropout_p,
                                           bool is_causal, std::optional<double> scale) {
  using Signature = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                       const std::optional<Tensor>&, double, bool,
                                                       std::optional<double>, std::optional<at::Generator>);
  static const auto op =
      find_fused<Signature>("loom_fused::_scaled_dot_product_fused_attention_overrideable");
  return op.call(query, key, value, bias, dropout_p, is_causal, scale, by_default());
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Gradients backward(const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
                   const Tensor& bias, bool wants_bias, const Tensor& output, const Tensor& logsumexp,
                   const Tensor& seed, double dropout_p, bool is_causal, std::optional<double> scale) {
  if (!gradient.defined()) return {};
  using Signature = std::tuple<Tensor, Tensor, Tensor, Tensor>(
      const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, bool,
      const Tensor&, const Tensor&, const Tensor&, double, bool, std::optional<double>);
  static const auto op =
      find_fused<Signature>("loom_fused::_scaled_dot_product_fused_attention_overrideable_backward");
  const std::optional<Tensor> given = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  return op.call(gradient, query, key, value, given, wants_bias && bias.defined(), output, logsumexp, seed,
                 dropout_p, is_causal, scale);
}

using AttentionResult =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

AttentionResult attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::optional<Tensor>& bias, double dropout_p, bool is_causal,
                          bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp, seed] = forward(query, key, value, bias, dropout_p, is_causal, scale);
  const Tensor none;
  // The shape function says that there is an offset, and torch.compile saves what that says; nobody reads it.
  const Tensor offset = at::zeros({}, at::kLong);
  return {output, logsumexp, none, none, query.sym_size(2), key.sym_size(2), seed, offset, none};
}

Gradients attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                             const Tensor& value, const Tensor& bias, std::array<bool, 4> needed,
                             const Tensor& output, const Tensor& logsumexp, const Tensor&, const Tensor&,
                             c10::SymInt, c10::SymInt, double dropout_p, bool is_causal, const Tensor& seed,
                             const Tensor&, std::optional<double> scale) {
  return backward(gradient, query, key, value, bias, needed[3], output, logsumexp, seed, dropout_p, is_causal,
                  scale);
}

// CUDA's fused kernels, which programs also call by their names: here they are the chip's one kernel.

void check_named(const Tensor& query, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& bias, const char* op) {
  TORCH_CHECK(
      is_shaped_for_fused(query, key, value, bias, /*is_causal=*/false, /*enable_gqa=*/true), op,
      ": query, key and value must be [batch, heads, time, width] of one floating dtype, with elements "
      "and sizes that fit, and the bias must expand to [batch, heads, time, time]; got ",
      query.sizes(), ", ", key.sizes(), ", ", value.sizes());
}

AttentionResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                                bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  check_named(query, key, value, {}, "_scaled_dot_product_flash_attention");
  return attention(query, key, value, {}, dropout_p, is_causal, false, scale);
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& logsumexp, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout_p,
    bool is_causal, const Tensor& seed, const Tensor&, std::optional<double> scale) {
  auto [dq, dk, dv, none] =
      backward(gradient, query, key, value, {}, false, output, logsumexp, seed, dropout_p, is_causal, scale);
  return {dq, dk, dv};
}

Gradients efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& bias, bool compute_logsumexp, double dropout_p,
                              bool is_causal, std::optional<double> scale) {
  check_named(query, key, value, bias, "_scaled_dot_product_efficient_attention");
  auto [output, logsumexp, seed] = forward(query, key, value, bias, dropout_p, is_causal, scale);
  if (!compute_logsumexp) logsumexp = at::empty({query.size(0), query.size(1), 0}, logsumexp.options());
  return {output, logsumexp, seed, at::empty({}, seed.options())};
}

Gradients efficient_attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                       const Tensor& value, const Tensor& bias, const Tensor& output,
                                       const Tensor& logsumexp, const Tensor& seed, const Tensor&,
                                       double dropout_p, std::array<bool, 4> needed, bool is_causal,
                                       std::optional<double> scale) {
  return backward(gradient, query, key, value, bias, needed[3], output, logsumexp, seed, dropout_p, is_causal,
                  scale);
}

}  // namespace

void register_attention() {
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, Tensor? "
      "bias, "
      "float dropout_p, bool is_causal, *, float? scale=None, Generator? generator=None) -> (Tensor, Tensor, "
      "Tensor)",
      engine_attention);
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable_backward(Tensor gradient, Tensor query, Tensor key, "
      "Tensor value, Tensor? bias, bool wants_bias, Tensor output, Tensor logsumexp, Tensor seed, float "
      "dropout_p, bool is_causal, *, float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)",
      engine_attention_backward);
  register_attention_choice(&choose);
  torch::Library& m = library(own_key());
  m.impl("_fused_sdp_choice", choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
  m.impl("_scaled_dot_product_flash_attention", flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  m.impl("_scaled_dot_product_efficient_attention", efficient_attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", efficient_attention_backward);
}

}  // namespace loom::glue
