#include "torch/kernels/attention/fused_attention.h"

#include "torch/engine/dropout.h"
#include "torch/engine/fused.h"
#include "torch/kernels/attention/attention_choice.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"
#include "torch/random/grid.h"

namespace loom::glue {

using at::Tensor;

int64_t scheme_of(const Tensor& query, bool is_efficient) {
  if (!is_loom(query) || cuda_random::grid_of(query.device().index()) == nullptr)
    return static_cast<int64_t>(DropoutScheme::kOwn);
  return static_cast<int64_t>(is_efficient ? DropoutScheme::kEfficient : DropoutScheme::kFlash);
}

AttentionResult fused_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                const std::optional<Tensor>& bias, double dropout_p, bool is_causal,
                                std::optional<double> scale, int64_t diagonal,
                                std::optional<int64_t> sum_rows) {
  check_operands(query, key, value, bias, dropout_p);
  static const auto op =
      find_fused<decltype(engine_attention)>("loom_fused::_scaled_dot_product_fused_attention_overrideable");
  return op.call(query, key, value, bias, dropout_p, is_causal, scale, diagonal, sum_rows,
                 default_generator(), scheme_of(query, sum_rows.has_value()));
}

AttentionGradients fused_attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                            const Tensor& value, const Tensor& bias, bool wants_bias,
                                            const Tensor& output, const Tensor& logsumexp,
                                            const DropoutState& state, double dropout_p, bool is_causal,
                                            std::optional<double> scale, int64_t diagonal, bool is_by_time) {
  if (!gradient.defined()) return {};
  static const auto op = find_fused<decltype(engine_attention_backward)>(
      "loom_fused::_scaled_dot_product_fused_attention_overrideable_backward");
  const std::optional<Tensor> given = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  check_operands(query, key, value, given, dropout_p);
  check_saved(gradient, query, value, output, logsumexp);
  return op.call(gradient, query, key, value, given, wants_bias && bias.defined(), output, logsumexp,
                 state.seed, state.offset, dropout_p, is_causal, scale, diagonal, is_by_time,
                 scheme_of(query, is_by_time));
}

int64_t in_tiles(int64_t rows) {
  constexpr int64_t kTile = 32;
  return (rows + kTile - 1) / kTile * kTile;
}

AttentionResult efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& bias, bool compute_logsumexp,
                                    double dropout_p, bool is_causal, std::optional<double> scale,
                                    int64_t diagonal) {
  if (is_cuda(query)) check_efficient(query);
  return fused_attention(query, key, value, bias, dropout_p, is_causal, scale, diagonal,
                         compute_logsumexp ? in_tiles(query.size(2)) : 0);
}

void register_fused_attention() {
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, Tensor? "
      "bias, "
      "float dropout_p, bool is_causal, *, float? scale=None, int diagonal=0, int? sum_rows=None, Generator? "
      "generator=None, int dropout_scheme=0) "
      "-> (Tensor, Tensor, Tensor, Tensor)",
      engine_attention);
  define_fused(
      "_scaled_dot_product_fused_attention_overrideable_backward(Tensor gradient, Tensor query, Tensor key, "
      "Tensor value, Tensor? bias, bool wants_bias, Tensor output, Tensor logsumexp, Tensor seed, Tensor "
      "offset, float "
      "dropout_p, bool is_causal, *, float? scale=None, int diagonal=0, bool is_by_time=False, int "
      "dropout_scheme=0) -> (Tensor, "
      "Tensor, Tensor, "
      "Tensor)",
      engine_attention_backward);
}

}  // namespace loom::glue
