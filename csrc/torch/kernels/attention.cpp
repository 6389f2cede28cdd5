// Scaled dot-product attention: the chip's fused kernel behind the ops PyTorch has for other backends.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymInt.h>

#include "torch/core/extension_points.h"
#include "torch/engine/fused.h"
#include "torch/kernels/attention_choice.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/optional_tensor.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::SDPBackend;
using at::Tensor;

// Not inlined: GCC 12 takes the empty optional's contents for used.
[[gnu::noinline]] std::optional<at::Generator> by_default() { return std::nullopt; }

// Output, log Σ exp of the scores, and the state of dropout: see engine_attention().
std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const std::optional<Tensor>& bias, double dropout_p,
                                           bool is_causal, std::optional<double> scale, int64_t diagonal = 0,
                                           std::optional<int64_t> sum_rows = std::nullopt) {
  using Signature = std::tuple<Tensor, Tensor, Tensor>(
      const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
      std::optional<double>, int64_t, std::optional<int64_t>, std::optional<at::Generator>);
  static const auto op =
      find_fused<Signature>("loom_fused::_scaled_dot_product_fused_attention_overrideable");
  return op.call(query, key, value, bias, dropout_p, is_causal, scale, diagonal, sum_rows, by_default());
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Gradients backward(const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
                   const Tensor& bias, bool wants_bias, const Tensor& output, const Tensor& logsumexp,
                   const Tensor& seed, double dropout_p, bool is_causal, std::optional<double> scale,
                   int64_t diagonal = 0, bool is_by_time = false) {
  if (!gradient.defined()) return {};
  using Signature = std::tuple<Tensor, Tensor, Tensor, Tensor>(
      const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, bool,
      const Tensor&, const Tensor&, const Tensor&, double, bool, std::optional<double>, int64_t, bool);
  static const auto op =
      find_fused<Signature>("loom_fused::_scaled_dot_product_fused_attention_overrideable_backward");
  const std::optional<Tensor> given = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  return op.call(gradient, query, key, value, given, wants_bias && bias.defined(), output, logsumexp, seed,
                 dropout_p, is_causal, scale, diagonal, is_by_time);
}

using AttentionResult =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

AttentionResult attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::optional<Tensor>& bias, double dropout_p, bool is_causal,
                          bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp, state] = forward(query, key, value, bias, dropout_p, is_causal, scale);
  const Tensor none;
  return {output,
          logsumexp,
          none,
          none,
          query.sym_size(2),
          key.sym_size(2),
          state.select(0, 0),
          state.select(0, 1),
          none};
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

// Under CUDA's flash kernel the last query sees all keys.
int64_t last_sees_all(const Tensor& query, const Tensor& key, bool is_causal) {
  return is_causal ? key.size(2) - query.size(2) : 0;
}

AttentionResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                                bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  check_named(query, key, value, {}, "_scaled_dot_product_flash_attention");
  auto [output, logsumexp, state] =
      forward(query, key, value, {}, dropout_p, is_causal, scale, last_sees_all(query, key, is_causal));
  const Tensor none;
  return {output,
          logsumexp,
          none,
          none,
          query.sym_size(2),
          key.sym_size(2),
          state.view(at::kUInt64),
          at::empty({}, state.options().dtype(at::kUInt64)),
          at::empty({0}, query.options())};
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
    bool is_causal, const Tensor& seed, const Tensor&, std::optional<double> scale) {
  warn_of_order(query, "Flash Attention");
  auto [dq, dk, dv, none] =
      backward(gradient, query, key, value, {}, false, output, logsumexp, seed.view(at::kLong), dropout_p,
               is_causal, scale, last_sees_all(query, key, is_causal));
  return {dq, dk, dv};
}

std::tuple<Tensor, Tensor, Tensor> efficient_forward(const Tensor& query, const Tensor& key,
                                                     const Tensor& value, const std::optional<Tensor>& bias,
                                                     bool compute_logsumexp, double dropout_p, bool is_causal,
                                                     std::optional<double> scale, int64_t diagonal) {
  constexpr int64_t kTile = 32;
  const int64_t sum_rows = compute_logsumexp ? (query.size(2) + kTile - 1) / kTile * kTile : 0;
  return forward(query, key, value, bias, dropout_p, is_causal, scale, diagonal, sum_rows);
}

Gradients efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& bias, bool compute_logsumexp, double dropout_p,
                              bool is_causal, std::optional<double> scale) {
  check_named(query, key, value, bias, "_scaled_dot_product_efficient_attention");
  auto [output, logsumexp, state] = efficient_forward(query, key, value, bias, compute_logsumexp, dropout_p,
                                                      is_causal, scale, /*diagonal=*/0);
  return {output, logsumexp, state.select(0, 0), state.select(0, 1)};
}

Gradients efficient_attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                       const Tensor& value, const Tensor& bias, const Tensor& output,
                                       const Tensor& logsumexp, const Tensor& seed, const Tensor&,
                                       double dropout_p, std::array<bool, 4> needed, bool is_causal,
                                       std::optional<double> scale) {
  warn_of_order(query, "Memory Efficient attention");
  return backward(gradient, query, key, value, bias, needed[3], output, logsumexp, seed, dropout_p, is_causal,
                  scale, /*diagonal=*/0, /*is_by_time=*/true);
}

// The same kernel of tensors [batch, time, heads, width], and with triangles of either corner:
// torch.nn.attention.bias calls it.
struct Triangle {
  bool is_causal;
  int64_t diagonal;

  Triangle(const Tensor& query, const Tensor& key, int64_t custom_mask_type)
      : is_causal(custom_mask_type != 0),
        diagonal(custom_mask_type == kFromBottomRight ? key.size(1) - query.size(1) : 0) {
    TORCH_CHECK(custom_mask_type >= 0 && custom_mask_type <= kFromBottomRight,
                "custom_mask_type must be 0 (none), 1 (from the top left) or 2 (from the bottom right), got ",
                custom_mask_type);
  }

 private:
  static constexpr int64_t kFromBottomRight = 2;
};

void check_dense(bool is_packed, std::optional<int64_t> window) {
  TORCH_CHECK_NOT_IMPLEMENTED(!is_packed && window.value_or(0) <= 0,
                              "_efficient_attention_forward of packed sequences or with a window: "
                              "torch.nn.attention.varlen does this");
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient_by_time(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& starts_q, const std::optional<Tensor>& starts_k, std::optional<c10::SymInt>,
    std::optional<c10::SymInt>, double dropout_p, int64_t custom_mask_type, bool compute_logsumexp,
    std::optional<double> scale, const std::optional<Tensor>& used_k, std::optional<int64_t> window) {
  check_dense(is_given(starts_q) || is_given(starts_k) || is_given(used_k), window);
  const Tensor by_head[] = {query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)};
  check_named(by_head[0], by_head[1], by_head[2], bias, "_efficient_attention_forward");
  const Triangle triangle(query, key, custom_mask_type);
  auto [output, logsumexp, state] =
      efficient_forward(by_head[0], by_head[1], by_head[2], bias, compute_logsumexp, dropout_p,
                        triangle.is_causal, scale, triangle.diagonal);
  return {output.transpose(1, 2), logsumexp,         state.select(0, 0),
          state.select(0, 1),     query.sym_size(1), key.sym_size(1)};
}

Gradients efficient_by_time_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                     const Tensor& value, const std::optional<Tensor>& bias,
                                     const Tensor& output, const std::optional<Tensor>& starts_q,
                                     const std::optional<Tensor>& starts_k, c10::SymInt, c10::SymInt,
                                     const Tensor& logsumexp, double dropout_p, const Tensor& seed,
                                     const Tensor&, int64_t custom_mask_type, bool wants_bias,
                                     std::optional<double> scale, std::optional<int64_t>,
                                     std::optional<int64_t> window, bool) {
  check_dense(is_given(starts_q) || is_given(starts_k), window);
  const Triangle triangle(query, key, custom_mask_type);
  auto [dq, dk, dv, db] =
      backward(gradient.transpose(1, 2), query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
               bias.value_or(Tensor()), wants_bias, output.transpose(1, 2), logsumexp, seed, dropout_p,
               triangle.is_causal, scale, triangle.diagonal, /*is_by_time=*/true);
  return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), db};
}

}  // namespace

void register_attention() {
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, Tensor? "
      "bias, "
      "float dropout_p, bool is_causal, *, float? scale=None, int diagonal=0, int? sum_rows=None, Generator? "
      "generator=None) "
      "-> (Tensor, Tensor, "
      "Tensor)",
      engine_attention);
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable_backward(Tensor gradient, Tensor query, Tensor key, "
      "Tensor value, Tensor? bias, bool wants_bias, Tensor output, Tensor logsumexp, Tensor seed, float "
      "dropout_p, bool is_causal, *, float? scale=None, int diagonal=0, bool is_by_time=False) -> (Tensor, "
      "Tensor, Tensor, "
      "Tensor)",
      engine_attention_backward);
  register_attention_choice(&choose_attention);
  torch::Library& m = library(own_key());
  m.impl("_fused_sdp_choice", choose_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
  m.impl("_scaled_dot_product_flash_attention", flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  m.impl("_scaled_dot_product_efficient_attention", efficient_attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", efficient_attention_backward);
  m.impl("_efficient_attention_forward", efficient_by_time);
  m.impl("_efficient_attention_backward", efficient_by_time_backward);
}

}  // namespace loom::glue
