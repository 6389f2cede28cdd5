// Fused kernels that the engine has under names of its own.
#pragma once

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>

#include <array>

#include "torch/engine/engine.h"

namespace loom::glue {

using EngineAttention = at::_ops::_scaled_dot_product_flash_attention_for_cpu;
using EngineAttentionBackward = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;

// Whether the engine runs a layer of an LSTM whole: for float32, with biases and without projections.
bool has_lstm_layer();
// One direction of one layer over a whole sequence: input [time, batch, features]. Output, hidden, cell.
std::array<at::Tensor, 3> engine_lstm_layer(const at::Tensor& input, at::TensorList weights,
                                            const at::Tensor& hx, const at::Tensor& cx, bool reverse,
                                            int64_t num_layers, bool bidirectional, bool train);

}  // namespace loom::glue
