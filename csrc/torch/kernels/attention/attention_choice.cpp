#include "torch/kernels/attention/attention_choice.h"

#include <ATen/Context.h>
#include <c10/core/SymInt.h>

#include <array>
#include <cmath>

#include "torch/core/device.h"
#include "torch/core/optional_tensor.h"
#include "torch/kernels/fused_op.h"

namespace loom::glue {

namespace {

using at::SDPBackend;
using at::Tensor;
using sdp::sdp_params;

// CUDA's fused kernels read rows of consecutive elements: anything else takes the way of plain ops there.
bool has_contiguous_rows(const sdp_params& call) {
  const auto is_row = [](const Tensor& tensor) { return tensor.sym_stride(-1) == 1; };
  return is_row(call.query) && is_row(call.key) && is_row(call.value) &&
         (!call.attn_mask.has_value() || is_row(*call.attn_mask));
}

template <typename... Words>
bool tell(bool is_told, const Words&... words) {
  if (is_told) TORCH_WARN(words...);
  return false;
}

bool is_on_device(const sdp_params& call, bool is_told) {
  const auto is_here = [](const Tensor& tensor) { return tensor.device().type() == device_type(); };
  return (is_here(call.query) && is_here(call.key) && is_here(call.value) &&
          (!call.attn_mask.has_value() || is_here(*call.attn_mask))) ||
         tell(is_told, "All tensors need to be on cuda device. Got query on device: ", call.query.device(),
              ", key on device: ", call.key.device(), ", value on device: ", call.value.device());
}

const runtime::Chip& chip_of(const Tensor& tensor) {
  return devices().device(resolve_device(tensor.device()).index()).chip();
}

bool has_capability(const sdp_params& call, int major, bool is_told, const char* kernel) {
  const runtime::Chip& chip = chip_of(call.query);
  return !chip.is_gpu || chip.capability_major >= major ||
         tell(is_told, kernel, " only supports gpu architectures in the range [sm", major,
              "0, sm121]. Attempting to run on a sm ", chip.capability_major, ".", chip.capability_minor,
              " gpu.");
}

constexpr int64_t kMaxFlashWidth = 256;

bool has_flash_width(const sdp_params& call, bool is_told) {
  const c10::SymInt width = call.query.sym_size(-1);
  return (width == call.key.sym_size(-1) && width == call.value.sym_size(-1) && width <= kMaxFlashWidth) ||
         tell(is_told,
              "Flash attention requires q,k,v to have the same last dimension and to be less than or equal "
              "to ",
              kMaxFlashWidth, ". Got Query.size(-1): ", width, ", Key.size(-1): ", call.key.sym_size(-1),
              ", Value.size(-1): ", call.value.sym_size(-1), " instead.");
}

bool has_flash_triangle(const sdp_params& call, bool is_told) {
  return !call.is_causal || call.query.is_nested() || call.key.is_nested() ||
         call.query.sym_size(-2) == call.key.sym_size(-2) ||
         tell(is_told,
              "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k. Got seqlen_q: ",
              call.query.sym_size(-2), " seqlen_k: ", call.key.sym_size(-2));
}

// The gradients of wide rows need more shared memory than these cards have.
bool has_flash_gradient(const sdp_params& call, bool is_told) {
  constexpr int64_t kMaxWidth = 192, kMaxWidthLacking = 224;
  const runtime::Chip& chip = chip_of(call.query);
  const bool is_small = chip.is_gpu && ((chip.capability_major == 8 && chip.capability_minor >= 6) ||
                                        chip.capability_major == 12);
  if (!is_small || !sdp::input_requires_grad(call)) return true;
  const c10::SymInt width = call.query.sym_size(-1);
  return width <= kMaxWidth || (call.dropout == 0 && width > kMaxWidthLacking) ||
         tell(is_told,
              "Flash attention currently doesn't support training with head_dim \u2208 (192, 224] or "
              "(head_dim \u2208 (224, 256] and dropout > 0.0) on gpu architectures in the range[sm86, sm89].",
              "Attempting to run with dropout set to: ", call.dropout, "and head_dim: ", width, " on a sm ",
              chip.capability_major, ".", chip.capability_minor, " gpu.");
}

// PyTorch pads dense rows; those of nested tensors must fit as they are.
bool has_flash_width_for_nested(const sdp_params& call, bool is_told) {
  constexpr int64_t kStep = 8;
  const int64_t width = call.query.size(-1);
  return width % kStep == 0 ||
         tell(is_told, "For NestedTensor inputs, Flash attention requires q,k,v to have the same last ",
              "dimension and to be a multiple of 8 and less than or equal to ", kMaxFlashWidth,
              ". Got Query.size(-1): ", width, ", Key.size(-1): ", call.key.size(-1),
              ", Value.size(-1): ", call.value.size(-1), " instead.");
}

// A batch of one stands for all, if the keys or values of the others are equally long.
bool has_batch_for_nested(const sdp_params& call, bool is_told) {
  const int64_t batch = call.query.size(0), keys = call.key.size(0), values = call.value.size(0);
  if (batch == keys && keys == values) return true;
  if (sdp::input_requires_grad(call)) {
    return tell(is_told, "Both fused kernels do not support training with broadcasted NT inputs.");
  }
  if (!sdp::try_broadcast_param_size(batch, keys, values, "batch size ", is_told)) return false;
  if (keys == 1 && values != 1) return sdp::check_safe_kv_broadcast(call.value, is_told);
  return values != 1 || keys == 1 || sdp::check_safe_kv_broadcast(call.key, is_told);
}

// Matrix units read 16 bytes of a row at a time: Volta's and Turing's only those of half precision.
int64_t step_of_efficient_width(const sdp_params& call) {
  const runtime::Chip& chip = chip_of(call.query);
  const bool is_half = at::isReducedFloatingType(call.query.scalar_type());
  if (!chip.is_gpu || chip.capability_major >= 8) return is_half ? 8 : 4;
  return chip.capability_major == 7 && is_half ? 8 : 1;
}

bool has_efficient_width(const sdp_params& call, bool is_told) {
  const int64_t step = step_of_efficient_width(call);
  const c10::SymInt width = call.query.sym_size(-1), of_value = call.value.sym_size(-1);
  return (width == call.key.sym_size(-1) && width > 0 && of_value > 0 && width % step == 0 &&
          of_value % step == 0) ||
         tell(is_told, "Mem efficient attention requires last dimension of inputs to be divisible by ", step,
              ". Got Query.size(-1): ", width, ", Key.size(-1): ", call.key.sym_size(-1),
              ", Value.size(-1): ", of_value, " instead.");
}

// Whether PyTorch has a fused kernel on CUDA for such a call, whichever kernels a program allows.
bool fits_flash_attention(const sdp_params& call, bool is_told) {
  constexpr std::array<c10::ScalarType, 2> kDtypes = {at::kHalf, at::kBFloat16};
  return has_capability(call, 8, is_told, "Flash attention") && sdp::check_tensor_shapes(call, is_told) &&
         sdp::check_for_attn_mask(call, is_told) && has_flash_width(call, is_told) &&
         has_flash_gradient(call, is_told) && has_flash_triangle(call, is_told) &&
         sdp::check_tensor_dtype(call, kDtypes, is_told) &&
         (!sdp::has_for_nested_inputs(call) ||
          (has_batch_for_nested(call, is_told) && has_flash_width_for_nested(call, is_told) &&
           sdp::check_for_seq_len_0_nested_tensor(call, is_told))) &&
         (!sdp::has_only_dense_inputs(call) ||
          (sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(call, is_told) &&
           sdp::check_nonzero_sequence_lengths_dense(call, is_told) &&
           sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/true>(call, is_told)));
}

bool fits_efficient_attention(const sdp_params& call, bool is_told) {
  constexpr std::array<c10::ScalarType, 3> kDtypes = {at::kHalf, at::kFloat, at::kBFloat16};
  constexpr std::array<c10::ScalarType, 2> kEarlyDtypes = {at::kHalf, at::kFloat};
  const runtime::Chip& chip = chip_of(call.query);
  const bool is_early = chip.is_gpu && chip.capability_major < 8;
  return has_capability(call, 5, is_told, "Mem Efficient Attention") &&
         sdp::check_tensor_shapes(call, is_told) && has_efficient_width(call, is_told) &&
         (!sdp::has_for_nested_inputs(call) ||
          (sdp::check_requires_grad_and_nested(call, is_told) && has_batch_for_nested(call, is_told) &&
           sdp::check_for_seq_len_0_nested_tensor(call, is_told))) &&
         (!sdp::has_only_dense_inputs(call) ||
          (sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/false>(call, is_told) &&
           sdp::check_nonzero_sequence_lengths_dense(call, is_told) &&
           sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>(call, is_told))) &&
         (is_early ? sdp::check_tensor_dtype(call, kEarlyDtypes, is_told)
                   : sdp::check_tensor_dtype(call, kDtypes, is_told));
}

// Rows that cuDNN's kernels have: 128 wide, or on Hopper and datacenter Blackwell 192 with values of 128.
bool has_cudnn_sizes(const sdp_params& call, bool is_told) {
  constexpr int64_t kMostRows = 65535, kStep = 8, kMaxWidth = 128, kMaxKeyWidth = 192;
  const runtime::Chip& chip = chip_of(call.query);
  const c10::SymInt batch = call.query.sym_size(0), heads = call.query.sym_size(1);
  const c10::SymInt width = call.query.sym_size(-1), of_value = call.value.sym_size(-1);
  const bool is_wide = (chip.capability_major == 9 || chip.capability_major == 10) && of_value == kMaxWidth &&
                       width == kMaxKeyWidth;
  if (batch > kMostRows || heads > kMostRows) {
    return tell(is_told, "cuDNN SDPA does not support batch size or num_heads greater than ", kMostRows,
                ". Got batch size: ", batch, ", num_heads: ", heads);
  }
  if (!is_wide && (width > kMaxWidth || of_value > kMaxWidth)) {
    return tell(is_told, "head_dim should be no more than ", kMaxWidth);
  }
  if (width % kStep != 0 || of_value % kStep != 0) {
    return tell(is_told, "head_dim should be a multiple of ", kStep);
  }
  if (call.key.sym_size(2) == 1) {
    return tell(is_told, "cudnn SDPA does not support key/value sequence length 1.");
  }
  return call.dropout == 0 || call.query.sym_size(2) != 1 ||
         tell(is_told, "cudnn SDPA does not support query sequence length 1 with dropout.");
}

bool has_cudnn_dropout(const sdp_params& call, bool is_told) {
  constexpr double kSteps = 16;
  return call.dropout * kSteps == std::floor(call.dropout * kSteps) ||
         tell(is_told, "cuDNN dropout probability resolution is limited to 1/16. Use a dropout probability ",
              "that is a multiple of 1/16 to select the cuDNN backend");
}

bool may_cudnn_vary(bool is_told) {
  const at::Context& context = at::globalContext();
  return !context.deterministicAlgorithms() || context.deterministicAlgorithmsWarnOnly() ||
         tell(is_told, "cuDNN SDPA is not deterministic.");
}

bool fits_cudnn_attention(const sdp_params& call, bool is_told) {
  constexpr std::array<c10::ScalarType, 2> kDtypes = {at::kHalf, at::kBFloat16};
  return (!sdp::has_for_nested_inputs(call) ||
          tell(is_told, "Experimental cuDNN SDPA nested tensor support is not enabled.")) &&
         sdp::check_tensor_shapes(call, is_told) && may_cudnn_vary(is_told) &&
         sdp::check_tensor_dtype(call, kDtypes, is_told) && sdp::check_attn_mask_shape(call, is_told) &&
         has_capability(call, 8, is_told, "cuDNN MHA") && has_cudnn_dropout(call, is_told) &&
         sdp::check_nonzero_sequence_lengths_dense(call, is_told) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/true>(call, is_told) &&
         sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true, /*requires_same_num_heads=*/false>(
             call, is_told) &&
         has_cudnn_sizes(call, is_told);
}

bool has_kernel(const sdp_params& call) {
  using runtime::FusedKernel;
  return chip_has(FusedKernel::kAttention, call.query) &&
         (!call.attn_mask.has_value() || chip_has(FusedKernel::kAttentionMask, call.query)) &&
         (call.dropout == 0 || chip_has(FusedKernel::kAttentionDropout, call.query)) &&
         (chip_has(FusedKernel::kAttentionStrides, call.query) || has_contiguous_rows(call));
}

// PyTorch's choice among its kernels of attention on CUDA.
SDPBackend choose_as_cuda(const sdp_params& call) {
  at::Context& context = at::globalContext();
  const bool may_decompose = context.userEnabledMathSDP();
  TORCH_CHECK(may_decompose || context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() ||
                  context.userEnabledCuDNNSDP(),
              "No viable backend for scaled_dot_product_attention was found. This is likely due to turning "
              "off both the math kernel and the fused kernels.");
  for (const SDPBackend kernel : context.sDPPriorityOrder()) {
    if ((kernel == SDPBackend::flash_attention && can_use_flash_attention(call, false)) ||
        (kernel == SDPBackend::efficient_attention && can_use_efficient_attention(call, false)) ||
        (kernel == SDPBackend::cudnn_attention && can_use_cudnn_attention(call, false)) ||
        (kernel == SDPBackend::math && may_decompose)) {
      return kernel;
    }
  }
  TORCH_WARN("Memory efficient kernel not used because:");
  can_use_efficient_attention(call, true);
  TORCH_WARN("Flash attention kernel not used because:");
  can_use_flash_attention(call, true);
  TORCH_WARN("cuDNN attention kernel not used because:");
  can_use_cudnn_attention(call, true);
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

}  // namespace

bool is_cuda(const Tensor& tensor) {
  return device_type() == c10::DeviceType::CUDA && tensor.device().type() == device_type() &&
         chip_of(tensor).is_gpu;
}

bool operands_fit(const Tensor& query, const Tensor& key, const Tensor& value,
                  const std::optional<Tensor>& mask, bool enable_gqa) {
  if (query.is_nested() || key.is_nested() || value.is_nested()) return false;
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  const c10::ScalarType dtype = query.scalar_type();
  if (!at::isFloatingType(dtype) || key.scalar_type() != dtype || value.scalar_type() != dtype) return false;
  // Sizes are symbols while a program with dynamic shapes is traced.
  const c10::SymInt heads = query.sym_size(1), shared = key.sym_size(1);
  const bool fits = key.sym_size(0) == query.sym_size(0) && value.sym_size(0) == query.sym_size(0) &&
                    value.sym_size(1) == shared && key.sym_size(2) == value.sym_size(2) &&
                    key.sym_size(3) == query.sym_size(3) &&
                    (enable_gqa && shared != 0 ? heads % shared == 0 : heads == shared);
  if (!fits || !mask.has_value() || !mask->defined()) return fits;
  if (mask->dim() != 2 && mask->dim() != 4) return false;
  const std::array<c10::SymInt, 4> scores = {query.sym_size(0), heads, query.sym_size(2), key.sym_size(2)};
  for (int64_t from_end = 1; from_end <= mask->dim(); ++from_end) {
    const c10::SymInt size = mask->sym_size(-from_end);
    if (size != 1 && size != scores[4 - from_end]) return false;
  }
  return true;
}

bool is_shaped_for_fused(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, bool is_causal, bool enable_gqa) {
  return operands_fit(query, key, value, mask, enable_gqa) && query.sym_numel() != 0 &&
         key.sym_numel() != 0 && value.sym_numel() != 0 && !(is_causal && is_given(mask));
}

bool can_use_flash_attention(const sdp_params& call, bool is_told) {
  return sdp::check_runtime_disabled_flash(call, is_told) && is_on_device(call, is_told) &&
         fits_flash_attention(call, is_told);
}

bool can_use_efficient_attention(const sdp_params& call, bool is_told) {
  return sdp::check_runtime_disabled_mem_efficient(call, is_told) && is_on_device(call, is_told) &&
         fits_efficient_attention(call, is_told);
}

bool can_use_cudnn_attention(const sdp_params& call, bool is_told) {
  return (at::globalContext().userEnabledCuDNNSDP() ||
          tell(is_told, "cuDNN attention has been runtime disabled.")) &&
         is_on_device(call, is_told) && fits_cudnn_attention(call, is_told);
}

int64_t choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  const bool has_mask = mask.has_value() && mask->defined();
  const sdp_params call{query, key, value, has_mask ? mask : std::nullopt, dropout, is_causal, enable_gqa};
  if (is_cuda(query)) return static_cast<int64_t>(choose_as_cuda(call));
  const at::Context& context = at::globalContext();
  // A program that asks for one of CUDA's fused kernels by name means the chip's.
  const bool may_fuse = context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() ||
                        context.userEnabledCuDNNSDP() || context.userEnabledOverrideableSDP();
  if (may_fuse && is_shaped_for_fused(query, key, value, call.attn_mask, is_causal, enable_gqa) &&
      has_kernel(call)) {
    if (!chip_of(query).is_gpu) return static_cast<int64_t>(SDPBackend::overrideable);
    // A GPU has the kernels that CUDA has, whatever a program calls the device. They differ in what they
    // keep.
    const bool may_choose = context.userEnabledOverrideableSDP();
    const bool may_flash = may_choose || context.userEnabledFlashSDP() || context.userEnabledCuDNNSDP();
    if (may_flash && fits_flash_attention(call, false)) return static_cast<int64_t>(SDPBackend::overrideable);
    if ((may_choose || context.userEnabledMemEfficientSDP()) && fits_efficient_attention(call, false))
      return static_cast<int64_t>(SDPBackend::efficient_attention);
  }
  return static_cast<int64_t>(context.userEnabledMathSDP() ? SDPBackend::math : SDPBackend::error);
}

}  // namespace loom::glue
