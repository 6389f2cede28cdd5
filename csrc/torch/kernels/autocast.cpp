// torch.autocast("loom"): PyTorch's own cast lists.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// The macros name Tensor and Scalar as at:: does.
namespace at::autocast {

namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: half precision "
      "cannot hold probabilities near 0 and 1. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss.");
}

}  // namespace

// Without it every op outside the lists fails while autocast is on.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOOM_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOOM_LOWER)
#undef LOOM_LOWER
#define LOOM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(LOOM_FP32)
#undef LOOM_FP32
#define LOOM_FP32_OPT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOOM_FP32_OPT)
#undef LOOM_FP32_OPT
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define LOOM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(LOOM_PROMOTE)
#undef LOOM_PROMOTE
  m.impl("binary_cross_entropy", refuse_binary_cross_entropy);
}

}  // namespace at::autocast
