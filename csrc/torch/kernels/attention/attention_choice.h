// Which kernel a call of scaled dot-product attention takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <optional>

namespace loom::glue {

// As PyTorch's stub of every backend has it: a number of at::SDPBackend. Only what a call's metadata says
// counts: a dry run takes the same way.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa);

// Whether programs know the device as CUDA, and its chip has CUDA's kernels.
bool is_cuda(const at::Tensor& tensor);

// Whether these are [batch, heads, time, width] of one floating dtype, and a mask of their scores.
bool operands_fit(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& mask, bool enable_gqa);
// Whether one kernel computes such a call.
bool is_shaped_for_fused(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, bool is_causal, bool enable_gqa);

// Whether a GPU has its kernel of that name for such a call. With `is_told` a warning says why not.
bool can_use_flash_attention(const sdp::sdp_params& call, bool is_told);
bool can_use_efficient_attention(const sdp::sdp_params& call, bool is_told);
bool can_use_cudnn_attention(const sdp::sdp_params& call, bool is_told);

}  // namespace loom::glue
