// Attention of packed sequences on the device, as one command: what CUDA's kernels for it are made of here.
#pragma once

#include <optional>
#include <tuple>

#include "torch/core/optional_tensor.h"
#include "torch/engine/fused.h"
#include "torch/kernels/attention/attention_checks.h"

namespace loom::glue {

// As programs give it. What stands for no limit, scale or tensor: see PackedAttention, which the engine is
// given.
struct PackedCall {
  at::Tensor query, key, value;
  std::optional<at::Tensor> starts_q, starts_k;
  // The longest sequences. No sequence may have more queries; of keys, only the cost of a call depends on it.
  int64_t max_q, max_k;
  double dropout;
  bool is_causal;
  std::optional<double> scale;
  std::optional<int64_t> left, right;
  std::optional<at::Tensor> used_k = std::nullopt, slopes = std::nullopt, pages = std::nullopt;
  bool is_from_top = false;
};

// Output, sums and the state of dropout: see engine_packed_attention().
AttentionResult packed_attention(const PackedCall& call, std::optional<int64_t> sum_rows = std::nullopt);
std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_attention_backward(const PackedCall& call,
                                                                         const at::Tensor& gradient,
                                                                         const at::Tensor& output,
                                                                         const at::Tensor& sums,
                                                                         const DropoutState& state);

}  // namespace loom::glue
