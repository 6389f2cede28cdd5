// The engine's side of fused attention: a single kernel, whether or not the engine has a kernel for these
// arguments. These ops are named as PyTorch's are and stand in the namespace loom_fused, where the boxed
// kernel runs them: they have a generator among their arguments, and return tensors only.
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "torch/engine/dropout.h"
#include "torch/engine/fused.h"

namespace loom::glue {

namespace {

using at::Tensor;

// What forward and backward share. Sizes: query [batch, heads, time, width], key and value with as many heads
// or a divisor of that.
struct Attention {
  Tensor query, key, value;  // the heads of key and value repeated to those of the query
  std::optional<Tensor> bias;
  double dropout, scale;
  bool is_causal;
  int64_t diagonal, repeats;

  Attention(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor bias, double dropout,
            bool is_causal, std::optional<double> scale, int64_t diagonal)
      : query(query),
        bias(is_given(bias) ? bias : std::nullopt),
        dropout(dropout),
        scale(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))),
        is_causal(is_causal),
        diagonal(diagonal),
        repeats(query.size(1) / std::max<int64_t>(key.size(1), 1)) {
    this->key = repeated(key);
    this->value = repeated(value);
  }

  Tensor repeated(const Tensor& heads) const {
    return repeats == 1 ? heads : heads.repeat_interleave(repeats, 1);
  }
  // The gradient of heads that were repeated.
  Tensor summed(const Tensor& gradient) const {
    if (repeats == 1) return gradient;
    return gradient.unflatten(1, {gradient.size(1) / repeats, repeats}).sum(2);
  }

  // Whether the engine's own kernel takes these.
  bool is_whole() const {
    if (is_causal && (bias.has_value() || diagonal != 0)) return false;
    if (dropout != 0 || query.size(-1) != value.size(-1) || query.numel() == 0 || key.numel() == 0)
      return false;
    return !bias.has_value() || bias->dim() == 2 || bias->dim() == 4;
  }

  // The parts compute in the type in which the engine's kernel adds up.
  void widen() {
    const c10::ScalarType wide = at::toOpMathType(query.scalar_type());
    for (Tensor* tensor : {&query, &key, &value}) *tensor = tensor->to(wide);
    if (bias.has_value()) bias = bias->to(wide);
  }

  // As the engine does without a kernel of its own: each side is multiplied by the root of the scale, so that
  // products round as there. A negative scale is the query's.
  double root() const { return std::sqrt(std::abs(scale)); }
  Tensor scaled_query() const { return query.mul(scale < 0 ? -root() : root()); }
  Tensor scaled_keys() const { return key.transpose(-2, -1).mul(root()); }

  Tensor scores() const {
    Tensor scores = at::matmul(scaled_query(), scaled_keys());
    if (bias.has_value()) scores.add_(*bias);
    if (!is_causal) return scores;
    const Tensor kept =
        at::ones({query.size(2), key.size(2)}, query.options().dtype(c10::kBool)).tril(diagonal);
    return scores.masked_fill_(kept.logical_not(), -std::numeric_limits<double>::infinity());
  }
};

// Contiguous but for the last dimension would do; the engine's kernel wants at least that.
Tensor rows(const Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

// [batch, heads, time, width], which lie in memory as batch, time, heads, width.
Tensor empty_by_time(const Tensor& like, int64_t width) {
  return at::empty({like.size(0), like.size(2), like.size(1), width}, like.options()).transpose(1, 2);
}
// Dimensions lie in memory in the order in which the query's do, as in the engine's own kernel.
Tensor empty_like_output(const Tensor& query, int64_t width, bool is_by_time) {
  if (is_by_time) return empty_by_time(query, width);
  const std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), width};
  return at::empty_strided(sizes, at::infer_dense_strides(sizes, query.strides()), query.options());
}
// As the op's shape function has it: torch.compile relies on these strides.
Tensor empty_logsumexp(const Tensor& query, std::optional<int64_t> rows) {
  const std::array<int64_t, 3> sizes = {query.size(0), query.size(1), rows.value_or(query.size(2))};
  const auto options = query.options().dtype(at::toOpMathType(query.scalar_type()));
  return rows.value_or(0) > query.size(2) ? at::full(sizes, std::numeric_limits<double>::infinity(), options)
                                          : at::empty(sizes, options);
}
// Rows begin at multiples of 16 elements under CUDA's memory-efficient kernel.
Tensor empty_bias_gradient(const Tensor& bias, bool has_aligned_rows) {
  if (!has_aligned_rows) return at::empty_like(bias);
  constexpr int64_t kAlignment = 16;
  std::vector<int64_t> sizes = bias.sizes().vec();
  const int64_t columns = sizes.back();
  sizes.back() = (columns + kAlignment - 1) / kAlignment * kAlignment;
  return at::empty(sizes, bias.options()).narrow(-1, 0, columns);
}
Tensor laid_out_as(const Tensor& own, const Tensor& computed) {
  const bool fits = computed.scalar_type() == own.scalar_type() && computed.strides() == own.strides();
  return fits ? computed : own.copy_(computed);
}

}  // namespace

AttentionResult engine_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 OptionalTensor bias, double dropout, bool is_causal,
                                 std::optional<double> scale, int64_t diagonal,
                                 std::optional<int64_t> sum_rows, std::optional<at::Generator> generator,
                                 int64_t dropout_scheme) {
  const Tensor state = at::empty({2}, query.options().dtype(c10::kLong));
  const Tensor offset = at::empty({}, state.options());
  if (query.is_meta()) {
    return {empty_like_output(query, value.size(-1), sum_rows.has_value()), empty_logsumexp(query, sum_rows),
            state, offset};
  }
  state.zero_();
  offset.zero_();
  Attention call(query, key, value, bias, dropout, is_causal, scale, diagonal);
  Tensor computed, sums;
  if (call.is_whole()) {
    std::tie(computed, sums) = at::_scaled_dot_product_flash_attention_for_cpu(
        rows(query), rows(call.key), rows(call.value), 0, is_causal, call.bias, call.scale);
    if (!sum_rows.has_value()) return {computed, sums.contiguous(), state, offset};
  } else {
    call.widen();
    const Tensor scores = call.scores();
    Tensor weights = at::_safe_softmax(scores, -1);
    if (dropout > 0) {
      weights = weights.mul(kept_weights(
          weights, dropout, draw_numbers(state, generator, static_cast<DropoutScheme>(dropout_scheme))));
      offset.copy_(state[1]);
    }
    computed = at::matmul(weights, call.value);
    sums = at::logsumexp(scores.to(at::toOpMathType(query.scalar_type())), {-1});
    // As CUDA's flash kernel has it for a query that sees no key.
    if (!bias.has_value() && !sum_rows.has_value())
      sums.masked_fill_(sums.eq(-std::numeric_limits<double>::infinity()),
                        std::numeric_limits<double>::infinity());
  }
  const Tensor output = laid_out_as(empty_like_output(query, value.size(-1), sum_rows.has_value()), computed);
  const Tensor logsumexp = empty_logsumexp(query, sum_rows);
  if (logsumexp.size(2) != 0) logsumexp.narrow(2, 0, query.size(2)).copy_(sums);
  return {output, logsumexp, state, offset};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> engine_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor bias,
    bool wants_bias, const Tensor& output, const Tensor& logsumexp, const Tensor& seed, const Tensor& offset,
    double dropout, bool is_causal, std::optional<double> scale, int64_t diagonal, bool is_by_time,
    int64_t dropout_scheme) {
  const auto empty_gradient = [&](const Tensor& operand) {
    return is_by_time ? empty_by_time(operand, operand.size(-1)) : at::empty_like(operand);
  };
  if (query.is_meta()) {
    return {empty_gradient(query), empty_gradient(key), empty_gradient(value),
            wants_bias ? empty_bias_gradient(*bias, is_by_time) : Tensor()};
  }
  Attention call(query, key, value, bias, dropout, is_causal, scale, diagonal);
  Tensor dq, dk, dv, db;
  if (call.is_whole() && !wants_bias) {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        rows(gradient), rows(query), rows(call.key), rows(call.value), output,
        logsumexp.narrow(2, 0, query.size(2)).contiguous(), 0, is_causal, call.bias, call.scale);
  } else {
    call.widen();
    const Tensor upstream = gradient.to(call.query.scalar_type());
    const Tensor weights = at::_safe_softmax(call.scores(), -1);
    Tensor kept, dropped = weights;
    if (dropout > 0) {
      kept = kept_weights(weights, dropout,
                          DropoutNumbers(seed, offset, 0, static_cast<DropoutScheme>(dropout_scheme)));
      dropped = weights.mul(kept);
    }
    dv = at::matmul(dropped.transpose(-2, -1), upstream);
    Tensor dw = at::matmul(upstream, call.value.transpose(-2, -1));
    if (kept.defined()) dw.mul_(kept);
    const Tensor ds = at::_softmax_backward_data(dw, weights, -1, weights.scalar_type());
    dq = at::matmul(ds, call.scaled_keys().transpose(-2, -1))
             .mul_(call.scale < 0 ? -call.root() : call.root());
    dk = at::matmul(call.scaled_query().transpose(-2, -1), ds).mul_(call.root()).transpose(-2, -1);
    if (wants_bias) db = ds.sum_to_size(bias->sizes()).to(bias->scalar_type());
  }
  // Laid out as the op's shape function has it.
  return {laid_out_as(empty_gradient(query), dq), laid_out_as(empty_gradient(key), call.summed(dk)),
          laid_out_as(empty_gradient(value), call.summed(dv)),
          db.defined() ? laid_out_as(empty_bias_gradient(*bias, is_by_time), db) : db};
}

}  // namespace loom::glue
