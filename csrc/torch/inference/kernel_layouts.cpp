#include "torch/inference/kernel_layouts.h"

#include <ATen/ops/empty_like.h>

#include <string_view>

namespace loom::glue {

namespace {

at::MemoryFormat format_of_convolution(const at::Tensor& operand, const at::Tensor& weight) {
  if (operand.dim() != weight.dim()) return at::MemoryFormat::Contiguous;
  const auto of_operand = operand.suggest_memory_format();
  return of_operand != at::MemoryFormat::Contiguous ? of_operand : weight.suggest_memory_format();
}

}  // namespace

void lay_out_as_kernel(const Op& op, const torch::jit::Stack& arguments, bool is_gpu,
                       torch::jit::Stack* stack) {
  if (op.record.shape_class != runtime::ShapeClass::kConvolution) return;
  const std::string_view name = op.name();
  const bool is_backward = name == "aten::convolution_backward";
  if (!is_backward && name != "aten::convolution") return;
  // The gradient of the output comes first.
  const size_t first = is_backward ? 1 : 0;
  if (is_gpu && arguments[first].toTensor().scalar_type() == at::kDouble) return;
  const at::MemoryFormat format =
      format_of_convolution(arguments[first].toTensor(), arguments[first + 1].toTensor());
  if (format == at::MemoryFormat::Contiguous) return;
  for (size_t i = stack->size() - op.num_returns; i < stack->size(); ++i) {
    const at::Tensor& result = (*stack)[i].toTensor();
    if (result.defined() && result.dim() == arguments[first].toTensor().dim())
      (*stack)[i] = at::empty_like(result, result.options().memory_format(format));
  }
}

}  // namespace loom::glue
