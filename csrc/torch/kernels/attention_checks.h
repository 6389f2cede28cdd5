// What attention refuses at the call: everything that sizes and dtypes tell. The engine's kernels check
// neither.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/core/optional_tensor.h"
#include "torch/engine/fused.h"

namespace loom::glue {

// Dense operands of forward and backward, [batch, heads, time, width].
void check_operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    OptionalTensor bias, double dropout);
// What forward saved for backward.
void check_saved(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& value,
                 const at::Tensor& output, const at::Tensor& logsumexp);

void check_packed(const PackedAttention& call);
void check_packed_saved(const PackedAttention& call, const at::Tensor& gradient, const at::Tensor& output,
                        const at::Tensor& sums);

// What CUDA's kernels refuse beyond that, in their words.
void check_flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);
void check_efficient(const at::Tensor& query);

// The number that dropout drew, whichever integers of 64 bits an op passes it as.
at::Tensor seed_of(const at::Tensor& state, double dropout);

}  // namespace loom::glue
