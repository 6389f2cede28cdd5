// The engine's side of fused attention: one kernel, whether or not the engine has one for these arguments.
// These ops are named as PyTorch's are and stand in the namespace loom_fused, where the boxed kernel runs
// them: they have a generator among their arguments, and return tensors only.
#include <ATen/CPUGeneratorImpl.h>
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
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include "torch/engine/fused.h"

namespace loom::glue {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// What forward and backward share. Sizes: query [batch, heads, time, width], key and value with as many heads
// or a divisor of that.
struct Attention {
  Tensor query, key, value;  // the heads of key and value repeated to those of the query
  OptionalTensor bias;
  double dropout, scale;
  bool is_causal;
  int64_t repeats;

  Attention(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
            double dropout, bool is_causal, std::optional<double> scale)
      : query(query),
        bias(bias.has_value() && bias->defined() ? bias : std::nullopt),
        dropout(dropout),
        scale(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))),
        is_causal(is_causal),
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
    if (bias.has_value() && is_causal) return false;
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
    const Tensor kept = at::ones({query.size(2), key.size(2)}, query.options().dtype(c10::kBool)).tril();
    return scores.masked_fill_(kept.logical_not(), -std::numeric_limits<double>::infinity());
  }

  // What dropout multiplies weights with, from the seed that forward drew.
  Tensor kept_weights(const Tensor& weights, const Tensor& seed) const {
    if (dropout >= 1) return at::zeros_like(weights);
    at::Generator generator =
        at::detail::createCPUGenerator(static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()));
    return at::empty_like(weights).bernoulli_(1 - dropout, generator).div_(1 - dropout);
  }
};

// Contiguous but for the last dimension would do; the engine's kernel wants at least that.
Tensor rows(const Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

// Dimensions lie in memory in the order in which the query's do, as in the engine's own kernel.
Tensor empty_like_output(const Tensor& query, int64_t width) {
  const std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), width};
  return at::empty_strided(sizes, at::infer_dense_strides(sizes, query.strides()), query.options());
}
// As the op's shape function has it: torch.compile relies on these strides.
Tensor empty_logsumexp(const Tensor& query) {
  return at::empty({query.size(0), query.size(1), query.size(2)},
                   query.options().dtype(at::toOpMathType(query.scalar_type())));
}

void draw_seed(const Tensor& seed, std::optional<at::Generator> generator) {
  auto* cpu =
      at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(cpu->mutex_);
  *seed.mutable_data_ptr<int64_t>() = static_cast<int64_t>(cpu->random64());
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> engine_attention(const Tensor& query, const Tensor& key,
                                                    const Tensor& value, const OptionalTensor& bias,
                                                    double dropout, bool is_causal,
                                                    std::optional<double> scale,
                                                    std::optional<at::Generator> generator) {
  const Tensor seed = at::empty({}, query.options().dtype(c10::kLong));
  if (query.is_meta()) return {empty_like_output(query, value.size(-1)), empty_logsumexp(query), seed};
  *seed.mutable_data_ptr<int64_t>() = 0;
  Attention call(query, key, value, bias, dropout, is_causal, scale);
  if (call.is_whole()) {
    auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        rows(query), rows(call.key), rows(call.value), 0, is_causal, call.bias, call.scale);
    return {output, logsumexp.contiguous(), seed};
  }
  call.widen();
  const Tensor scores = call.scores();
  Tensor weights = at::_safe_softmax(scores, -1);
  if (dropout > 0) {
    draw_seed(seed, generator);
    weights = weights.mul(call.kept_weights(weights, seed));
  }
  const Tensor output = empty_like_output(query, value.size(-1)), logsumexp = empty_logsumexp(query);
  output.copy_(at::matmul(weights, call.value));
  logsumexp.copy_(at::logsumexp(scores.to(logsumexp.scalar_type()), {-1}));
  return {output, logsumexp, seed};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> engine_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
    const OptionalTensor& bias, bool wants_bias, const Tensor& output, const Tensor& logsumexp,
    const Tensor& seed, double dropout, bool is_causal, std::optional<double> scale) {
  if (query.is_meta()) {
    return {at::empty_like(query), at::empty_like(key), at::empty_like(value),
            wants_bias ? at::empty_like(*bias) : Tensor()};
  }
  Attention call(query, key, value, bias, dropout, is_causal, scale);
  Tensor dq, dk, dv, db;
  if (call.is_whole() && !wants_bias) {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        rows(gradient), rows(query), rows(call.key), rows(call.value), output, logsumexp, 0, is_causal,
        call.bias, call.scale);
  } else {
    call.widen();
    const Tensor upstream = gradient.to(call.query.scalar_type());
    const Tensor weights = at::_safe_softmax(call.scores(), -1);
    Tensor kept, dropped = weights;
    if (dropout > 0) {
      kept = call.kept_weights(weights, seed);
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
  // Laid out like the operand, as the op's shape function has it.
  const auto as_operand = [](const Tensor& gradient, const Tensor& operand) {
    const Tensor own = at::empty_like(operand);
    const bool fits = gradient.scalar_type() == own.scalar_type() && gradient.strides() == own.strides();
    return fits ? gradient : own.copy_(gradient);
  };
  return {as_operand(dq, query), as_operand(call.summed(dk), key), as_operand(call.summed(dv), value),
          db.defined() ? as_operand(db, *bias) : db};
}

}  // namespace loom::glue
