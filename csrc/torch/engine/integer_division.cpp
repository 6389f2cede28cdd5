#include "torch/engine/integer_division.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/masked_fill.h>

#include "torch/engine/output_allocation.h"

namespace loom::glue {

void avoid_zero_divisors(torch::jit::Stack& stack, size_t num_arguments) {
  const size_t first = stack.size() - num_arguments;
  const c10::IValue& dividend = stack[first];
  if (!stack[first + 1].isTensor()) return;
  const at::Tensor& divisor = stack[first + 1].toTensor();
  const auto is_whole = [](const at::Tensor& tensor) {
    return tensor.defined() && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  };
  const bool divides_whole = dividend.isTensor() ? is_whole(dividend.toTensor()) : !dividend.isDouble();
  if (!divides_whole || !is_whole(divisor) || divisor.is_meta()) return;
  const OutputAllocations::Suspended on_host;
  const at::Tensor is_zero = at::eq(divisor, 0);
  if (!at::any(is_zero).item<bool>()) return;
  at::Tensor replaced = at::masked_fill(divisor, is_zero, 1);
  if (divisor.unsafeGetTensorImpl()->is_wrapped_number()) {
    replaced.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  stack[first + 1] = std::move(replaced);
}

}  // namespace loom::glue
