// Scaled dot-product attention on the device: the chip's one kernel for it, and its gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <tuple>

#include "torch/engine/fused.h"
#include "torch/kernels/attention/attention_checks.h"

namespace loom::glue {

using AttentionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// The DropoutScheme of a call on the device, by the CUDA kernel that it would take.
int64_t scheme_of(const at::Tensor& query, bool is_efficient);

// Output, log Σ exp of the scores, and the state of dropout: see engine_attention().
AttentionResult fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const std::optional<at::Tensor>& bias, double dropout_p, bool is_causal,
                                std::optional<double> scale, int64_t diagonal = 0,
                                std::optional<int64_t> sum_rows = std::nullopt);
AttentionGradients fused_attention_backward(const at::Tensor& gradient, const at::Tensor& query,
                                            const at::Tensor& key, const at::Tensor& value,
                                            const at::Tensor& bias, bool wants_bias, const at::Tensor& output,
                                            const at::Tensor& logsumexp, const DropoutState& state,
                                            double dropout_p, bool is_causal, std::optional<double> scale,
                                            int64_t diagonal = 0, bool is_by_time = false);

// The same with the layout and the sums of CUDA's memory-efficient kernel, whose sums have so many rows.
int64_t in_tiles(int64_t rows);
AttentionResult efficient_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const std::optional<at::Tensor>& bias, bool compute_logsumexp,
                                    double dropout_p, bool is_causal, std::optional<double> scale,
                                    int64_t diagonal);

// What CUDA's flash kernel returns, whatever the layout of the operands.
using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                               at::Tensor, at::Tensor, at::Tensor>;

}  // namespace loom::glue
