#include "torch/kernels/attention/attention_dropout.h"

#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "torch/engine/dropout.h"
#include "torch/kernels/attention/fused_attention.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

using at::Tensor;

namespace {

// The random numbers that decided on dropout under a seed: a weight was kept where its number is greater than
// the probability. PyTorch's tests of CUDA's kernels ask for them.
Tensor& fill_dropout_mask(Tensor& self, double dropout_p, int64_t seed, int64_t offset, int64_t scheme) {
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1,
              "_fill_mem_eff_dropout_mask_: dropout_p must be a probability from 0 to 1, got ", dropout_p);
  TORCH_CHECK(
      self.scalar_type() == at::kFloat && self.dim() == 4 && self.is_contiguous(),
      "_fill_mem_eff_dropout_mask_ needs a contiguous mask [batch, heads, time, time] of float32, got ",
      self.scalar_type(), " of ", self.sizes(), " with the strides ", self.strides());
  if (self.is_meta()) return self;
  return DropoutNumbers(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset),
                        static_cast<DropoutScheme>(scheme))
      .fill(self, dropout_p);
}

Tensor& fill_on_device(Tensor& self, double dropout_p, int64_t seed, int64_t offset) {
  static const auto op = find_fused<decltype(fill_dropout_mask)>("loom_fused::_fill_mem_eff_dropout_mask_");
  return op.call(self, dropout_p, seed, offset, scheme_of(self, /*is_efficient=*/true));
}

// The same of a state that lies on the device.
Tensor& fill_from_state(Tensor& self, const Tensor& state, int64_t sequence, double dropout_p,
                        int64_t scheme) {
  if (self.is_meta()) return self;
  return DropoutNumbers(state[0], state[1], sequence, static_cast<DropoutScheme>(scheme))
      .fill(self, dropout_p);
}

Tensor dropout_numbers(const Tensor& weights, const Tensor& state, int64_t sequence, double dropout_p) {
  static const auto op =
      find_fused<decltype(fill_from_state)>("loom_fused::_fill_mem_eff_dropout_mask_", "state");
  Tensor numbers = at::empty(weights.sizes(), weights.options().dtype(at::kFloat));
  return op.call(numbers, state, sequence, dropout_p, scheme_of(weights, /*is_efficient=*/false));
}

}  // namespace

Tensor signed_weights(const Tensor& query, const Tensor& key, double dropout_p, bool is_causal,
                      std::optional<double> scale, const Tensor& state, int64_t sequence) {
  const int64_t repeats = query.size(1) / std::max<int64_t>(key.size(1), 1);
  const Tensor all_keys = key.repeat_interleave(repeats, 1).to(at::kFloat);
  Tensor scores = at::matmul(query.to(at::kFloat), all_keys.transpose(-2, -1))
                      .mul_(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))));
  const int64_t rows = query.size(2), columns = key.size(2);
  if (is_causal) {
    const Tensor seen = at::ones({rows, columns}, scores.options().dtype(at::kBool)).tril(columns - rows);
    scores.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  const Tensor weights = at::_safe_softmax(scores, -1);
  const Tensor numbers = dropout_numbers(weights, state, sequence, dropout_p);
  return at::where(numbers.gt(dropout_p), weights, weights.neg()).to(query.scalar_type());
}

Tensor in_mask_tiles(const Tensor& weights, int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 128;
  const auto missing = [](int64_t wanted, int64_t size) {
    return (wanted + kTile - 1) / kTile * kTile - size;
  };
  return at::constant_pad_nd(weights,
                             {0, missing(columns, weights.size(3)), 0, missing(rows, weights.size(2))});
}

void register_attention_dropout() {
  define_fused(
      "_fill_mem_eff_dropout_mask_.state(Tensor(a!) self, Tensor state, int sequence, float dropout_p, int "
      "scheme) -> "
      "Tensor(a!)",
      fill_from_state);
  define_fused(
      "_fill_mem_eff_dropout_mask_(Tensor(a!) self, float dropout_p, int seed, int offset, int scheme) -> "
      "Tensor(a!)",
      fill_dropout_mask);
  library(own_key()).impl("_fill_mem_eff_dropout_mask_", fill_on_device);
}

}  // namespace loom::glue
