// Checks of sizes and dtypes at the call of attention. The engine's kernels check neither.
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
// Of the sums that backward is given, [batch, heads, time]: forward keeps none if only the mask requires a
// gradient.
void check_efficient_sums(const at::Tensor& sums);

// Where the random numbers of dropout started, one number of int64 each.
struct DropoutState {
  at::Tensor seed, offset;
};
// As an op returned it, of whichever integers of 64 bits: in two tensors, or both in the first one.
DropoutState saved_state(const at::Tensor& seed, const at::Tensor& offset, double dropout);

}  // namespace loom::glue
