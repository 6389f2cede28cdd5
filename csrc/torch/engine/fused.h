// Fused kernels: the engine's own, or what stands for those that it lacks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace loom::glue {

// Scaled dot-product attention of tensors of the engine, or of the device meta. Sizes: query [batch, heads,
// time, width], key and value with as many heads or a divisor of that. Output [batch, heads, time, width of
// value], log Σ exp of the scores [batch, heads, time], and the seed and offset of dropout. With `sum_rows`
// as CUDA's memory-efficient kernel returns them: the output lies in memory by time, and the second has so
// many rows, of which those behind the query's are 0; if 0, none.
std::tuple<at::Tensor, at::Tensor, at::Tensor> engine_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, double dropout, bool is_causal, std::optional<double> scale,
    int64_t diagonal, std::optional<int64_t> sum_rows, std::optional<at::Generator> generator);
// The gradients of query, key, value and, if it is wanted, of the bias. `is_by_time`: they lie in memory so.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> engine_attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, bool wants_bias, const at::Tensor& output,
    const at::Tensor& logsumexp, const at::Tensor& seed, double dropout, bool is_causal,
    std::optional<double> scale, int64_t diagonal, bool is_by_time);

// Whether the engine runs a layer of an LSTM whole: for float32, with biases and without projections.
bool has_lstm_layer();
// One direction of one layer over a whole sequence: input [time, batch, features]. Output, hidden, cell.
std::array<at::Tensor, 3> engine_lstm_layer(const at::Tensor& input, at::TensorList weights,
                                            const at::Tensor& hx, const at::Tensor& cx, bool reverse,
                                            int64_t num_layers, bool bidirectional, bool train);

}  // namespace loom::glue
