// Fused kernels: the engine's own, or what stands for those that it lacks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "torch/core/optional_tensor.h"

namespace loom::glue {

// Scaled dot-product attention of tensors of the engine, or of the device meta. Sizes: query [batch, heads,
// time, width], key and value with as many heads or a divisor of that. Output [batch, heads, time, width of
// value], log Σ exp of the scores [batch, heads, time], and the state of dropout: seed and offset in one
// tensor, and the offset in one of its own, since a kernel's results start where memory does. With `sum_rows`
// as CUDA's memory-efficient kernel returns them: the output lies in memory by time, and the second has so
// many rows, of which those behind the query's are ∞; if 0, none.
using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
AttentionResult engine_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const std::optional<at::Tensor>& bias, double dropout, bool is_causal,
                                 std::optional<double> scale, int64_t diagonal,
                                 std::optional<int64_t> sum_rows, std::optional<at::Generator> generator,
                                 int64_t dropout_scheme);
// The gradients of query, key, value and, if it is wanted, of the bias. `is_by_time`: they lie in memory so.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> engine_attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, bool wants_bias, const at::Tensor& output,
    const at::Tensor& logsumexp, const at::Tensor& seed, const at::Tensor& offset, double dropout,
    bool is_causal, std::optional<double> scale, int64_t diagonal, bool is_by_time, int64_t dropout_scheme);

// Attention of sequences packed one behind another: query (rows, heads, width), and where each sequence
// starts. Else: query (batch, rows, heads, width). Key and value have as many heads, or a divisor of that.
struct PackedAttention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> starts_q, starts_k, used_k, slopes, pages;
  int64_t max_q;  // CUDA's kernels compute so many queries of a sequence: a longer sequence is refused.
  double dropout, scale;
  bool is_from_top;            // The first query stands beside the first key, else the last beside the last.
  int64_t left, right;         // How far a query sees; negative: without limit.
  int64_t dropout_scheme = 0;  // A DropoutScheme: whose random numbers decide.

  bool is_packed() const { return is_given(starts_q); }
  int64_t heads() const { return query.size(-2); }
  int64_t repeats() const { return heads() / std::max<int64_t>(key.size(-2), 1); }
  int64_t count() const { return is_packed() ? starts_q->numel() - 1 : query.size(0); }
};
// Output, log Σ exp of the scores (∞ for a query that sees no key), and the seed and offset of dropout. The
// sums are (heads, rows) of packed sequences; with `sum_rows` (sequences, heads, so many rows), if 0 none.
AttentionResult engine_packed_attention(const PackedAttention& call, std::optional<int64_t> sum_rows,
                                        std::optional<at::Generator> generator);
// The gradients of query, key and value.
std::tuple<at::Tensor, at::Tensor, at::Tensor> engine_packed_attention_backward(
    const PackedAttention& call, const at::Tensor& gradient, const at::Tensor& output, const at::Tensor& sums,
    const at::Tensor& seed, const at::Tensor& offset);

// Whether the engine runs a layer of an LSTM whole: for float32, with biases and without projections.
bool has_lstm_layer();
// One direction of one layer over a whole sequence: input [time, batch, features]. Output, hidden, cell.
std::array<at::Tensor, 3> engine_lstm_layer(const at::Tensor& input, at::TensorList weights,
                                            const at::Tensor& hx, const at::Tensor& cx, bool reverse,
                                            int64_t num_layers, bool bidirectional, bool train);

}  // namespace loom::glue
