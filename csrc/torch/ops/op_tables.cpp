#include "torch/ops/op_tables.h"

#include <unordered_set>

namespace loom::glue {

namespace {

using Names = std::unordered_set<std::string>;

bool starts_with(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

}  // namespace

bool accepts_host_scalars(const std::string& name) {
  static const Names names = {
#include "torch/ops/generated/host_scalar_ops.inc"
  };
  // Optimizers pass learning rate and step as CPU scalars to whole lists of device tensors.
  return starts_with(name, "aten::_foreach_") || starts_with(name, "aten::_fused_") || names.count(name) != 0;
}

bool accepts_host_indices(const std::string& name) {
  static const Names names = {"aten::index.Tensor",     "aten::index.Tensor_out",
                              "aten::_index_put_impl_", "aten::_unsafe_index.Tensor",
                              "aten::index_put",        "aten::index_put_"};
  return names.count(name) != 0;
}

bool accepts_host_tensors(const std::string& name) {
  static const Names names = {
      // Lengths that the host reads.
      "aten::_pack_padded_sequence",
      "aten::_pack_padded_sequence_backward",
      "aten::_ctc_loss.Tensor",
      "aten::_ctc_loss_backward.Tensor",
      "aten::_use_cudnn_ctc_loss.Tensor",
      // Steps of optimizers that are not capturable live on the CPU.
      "aten::_fused_adam_",
      "aten::_fused_adamw_",
      "aten::_fused_adagrad_",
  };
  return names.count(name) != 0;
}

bool makes_contents(const std::string& name) {
  static const Names names = {
      "aten::arange.start_out", "aten::range.out",    "aten::linspace.out",
      "aten::logspace.out",     "aten::eye.out",      "aten::eye.m_out",
      "aten::tril_indices",     "aten::triu_indices", "aten::randperm.generator_out",
      "aten::fill_.Tensor",     "aten::normal_",      "aten::uniform_",
      "aten::random_",          "aten::random_.from", "aten::random_.to",
      "aten::bernoulli_.float", "aten::exponential_", "aten::cauchy_",
      "aten::log_normal_",      "aten::geometric_",
  };
  return names.count(name) != 0;
}

bool is_borrowable(const std::string& name) {
  static const Names names = {
      "aten::to_mkldnn",
      "aten::from_file",
      "aten::_empty_affine_quantized",
      "aten::_empty_per_channel_affine_quantized",
      "aten::empty_quantized",
      "aten::quantize_per_tensor",
      "aten::quantize_per_tensor_dynamic",
      "aten::quantize_per_tensor.tensor_qparams",
      "aten::quantize_per_tensor.tensors",
      "aten::quantize_per_channel",
      "aten::_make_per_tensor_quantized_tensor",
      "aten::_make_per_channel_quantized_tensor",
  };
  // Kernels of other libraries for the CPU are not the device's: they must be registered for it, as on a
  // card.
  const bool is_own = starts_with(name, "aten::") || starts_with(name, "prims::") ||
                      starts_with(name, "torchvision::") || starts_with(name, "torchaudio::") ||
                      starts_with(name, "loom_numerics::");
  return is_own && names.count(name) == 0 && !starts_with(name, "aten::mkldnn_reorder");
}

}  // namespace loom::glue
