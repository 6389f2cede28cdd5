// Quantized tensors: their integers live on the device, and so do scales that are tensors. Ops are lent them.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_empty_per_channel_affine_quantized.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <string_view>

#include "torch/core/device.h"
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/kernels/copy.h"
#include "torch/kernels/register.h"
#include "torch/kernels/registrar.h"
#include "torch/loans/layouts.h"
#include "torch/loans/quantizer.h"

namespace loom::glue {

namespace {

using at::Tensor;

// Views, and what only asks for a quantizer: PyTorch's kernels for these touch no memory.
constexpr const char* kOfMetadata[] = {
    "aten::_reshape_alias",
    "aten::as_strided",
    "aten::empty_like",
    "aten::empty_quantized",
    "aten::q_per_channel_axis",
    "aten::q_per_channel_scales",
    "aten::q_per_channel_zero_points",
    "aten::q_scale",
    "aten::q_zero_point",
    "aten::qscheme",
    "aten::set_.source_Storage_storage_offset",
    "aten::squeeze",
    "aten::squeeze.dim",
    "aten::squeeze.dims",
    "aten::unfold",
    "aten::unsqueeze",
    "aten::view",
};

constexpr const char* kQuantizing[] = {
    "quantize_per_channel",        "quantize_per_tensor",         "quantize_per_tensor.tensor_qparams",
    "quantize_per_tensor.tensors", "quantize_per_tensor_dynamic",
};

void quantize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::IValue& first = stack->at(stack->size() - op.schema().arguments().size());
  const c10::ArrayRef<c10::IValue> given =
      first.isTensor() ? c10::ArrayRef<c10::IValue>(first) : first.toListRef();
  for (const c10::IValue& tensor : given) {
    if (is_loom(tensor.toTensor())) check_computes(glue::device_of(tensor.toTensor()), "quantized");
  }
  run_boxed(op, stack);
}

Tensor empty_over(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                  std::optional<c10::Device> device, std::optional<c10::MemoryFormat> format,
                  at::QuantizerPtr quantizer) {
  const c10::ScalarType integers = c10::toUnderlying(c10::dtype_or_default(dtype));
  const Tensor memory = at::empty(size, at::TensorOptions(resolve_device(device)).dtype(integers), format);
  return make_quantized(memory, c10::dtype_or_default(dtype), std::move(quantizer));
}

Tensor empty_affine(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                    std::optional<c10::Device> device, std::optional<bool>, double scale, int64_t zero_point,
                    std::optional<c10::MemoryFormat> format) {
  return empty_over(size, dtype, device, format,
                    at::make_per_tensor_affine_quantizer(scale, zero_point, c10::dtype_or_default(dtype)));
}

Tensor empty_per_channel(at::IntArrayRef size, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory,
                         std::optional<c10::MemoryFormat> format) {
  if (device.has_value() && device->type() != device_type()) {  // the scales' keys led here
    const auto options = at::TensorOptions(*device).dtype(dtype).pinned_memory(pin_memory);
    return at::_empty_per_channel_affine_quantized(size, scales.to(*device), zero_points.to(*device), axis,
                                                   options, format);
  }
  TORCH_CHECK(scales.dim() == 1 && zero_points.dim() == 1 && scales.numel() == zero_points.numel(),
              "scales and zero_points must have one dimension and as many elements, got ", scales.sizes(),
              " and ", zero_points.sizes());
  TORCH_CHECK(axis >= 0 && axis < static_cast<int64_t>(size.size()), "Channel axis out of range: ", axis,
              " of a tensor of ", size.size(), " dimensions");
  const c10::Device own = resolve_device(device);
  return empty_over(size, dtype, own, format,
                    at::make_per_channel_affine_quantizer(scales.to(own), zero_points.to(own), axis,
                                                          c10::dtype_or_default(dtype)));
}

Tensor empty_unknown(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                     std::optional<c10::Device> device, std::optional<bool>,
                     std::optional<c10::MemoryFormat> format) {
  return empty_over(size, dtype, device, format, at::make_unknown_quantizer(c10::dtype_or_default(dtype)));
}

Tensor clone(const Tensor& self, std::optional<c10::MemoryFormat> format) {
  return make_quantized(memory_of(self).clone(format), self.scalar_type(),
                        at::get_qtensorimpl(self)->quantizer());
}

Tensor& copy_quantized(Tensor& self, const Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  TORCH_CHECK(
      self.is_quantized(),
      "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to "
      "get a float Tensor from a quantized Tensor");
  if (!source.is_quantized()) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    torch::jit::Stack stack{self, source.to(self.device()), non_blocking};
    run_boxed_by_keys(op, &stack);
    return self;
  }
  TORCH_CHECK(self.qscheme() == source.qscheme(), "Quantized Copy only works with same qscheme");
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "Quantized copy_ only works with tensors of the "
              "same dtype, got ",
              self.scalar_type(), " and ", source.scalar_type());
  at::set_quantizer_(self, with_parts(at::get_qtensorimpl(source)->quantizer(),
                                      [&](const Tensor& part) { return part.to(self.device()); }));
  Tensor destination = memory_of(self);
  copy_(destination, memory_of(source), non_blocking);
  return self;
}

void register_quantized_ops() {
  fall_back(quantized_key(), c10::KernelFunction::makeFromBoxedFunction<&run_boxed_by_keys>());
  Registrar(quantized_key(), [](std::string_view op) {
    return has_name(kOfMetadata, op)
               ? c10::KernelFunction::makeFromBoxedFunction<&run_as_engine<kEngineQuantizedOps>>()
               : c10::KernelFunction::makeFromBoxedFunction<&run_boxed_by_keys>();
  }).implement_all(kEngineQuantizedOps);
}

}  // namespace

void register_quantized() {
  torch::Library& m = library(quantized_key());
  for (const char* name : kQuantizing) {
    library(own_key()).impl(name, torch::CppFunction::makeFromBoxedFunction<&quantize>());
  }
  m.impl("clone", clone);
  m.impl("copy_", copy_quantized);
  m.impl("empty.memory_format", empty_unknown);
  m.impl("_empty_affine_quantized", empty_affine);
  m.impl("_empty_per_channel_affine_quantized", empty_per_channel);
  at_first_use(register_quantized_ops);
}

}  // namespace loom::glue
