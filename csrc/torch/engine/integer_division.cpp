#include "torch/engine/integer_division.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/where.h>

#include <limits>

#include "torch/core/device_type.h"
#include "torch/engine/output_allocation.h"

namespace loom::glue {

namespace {

using at::Tensor;

bool is_whole(const Tensor& tensor) {
  return tensor.defined() && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

Tensor without_zeros(const Tensor& divisor) {
  const Tensor is_zero = at::eq(divisor, 0);
  if (!at::any(is_zero).item<bool>()) return divisor;
  Tensor replaced = at::masked_fill(divisor, is_zero, 1);
  if (divisor.unsafeGetTensorImpl()->is_wrapped_number()) {
    replaced.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return replaced;
}

// Narrower numbers are divided as int32, which holds their quotients. A dividend without dimensions may have
// a wider dtype than the division.
Tensor without_overflow(const Tensor& dividend, const Tensor& divisor) {
  const c10::ScalarType type = at::native::result_type({dividend, divisor});
  if (type != at::kInt && type != at::kLong) return divisor;
  const Tensor is_minus_one = at::eq(divisor, -1);
  if (!at::any(is_minus_one).item<bool>()) return divisor;
  const int64_t least =
      type == at::kInt ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
  if (dividend.layout() != c10::kStrided) {
    // The engine divides no others than COO.
    TORCH_CHECK(!dividend.is_sparse() || !at::any(at::eq(dividend._values().to(type), least)).item<bool>(),
                "The quotient of a sparse tensor with the value ", least, " and -1 is not a number of ",
                type);
    return divisor;
  }
  const Tensor overflows = at::logical_and(is_minus_one, at::eq(dividend.to(type), least));
  if (!at::any(overflows).item<bool>()) return divisor;
  // As wide as the result, so that it promotes as before.
  return at::where(overflows, 1, divisor.to(type));
}

}  // namespace

void prepare_integer_division(torch::jit::Stack& stack, size_t num_arguments, bool takes_zeros) {
  const size_t first = stack.size() - num_arguments;
  const c10::IValue& dividend = stack[first];
  if (!stack[first + 1].isTensor()) return;
  // div's rounding mode: without one the quotients are no whole numbers.
  if (num_arguments > 2 && stack[first + 2].isNone()) return;
  const Tensor& divisor = stack[first + 1].toTensor();
  const bool divides_whole = dividend.isTensor() ? is_whole(dividend.toTensor()) : !dividend.isDouble();
  if (!divides_whole || !is_whole(divisor) || divisor.is_meta()) return;
  // CUDA's quotients by zero and of the least number are computed apart (torch/cuda/values/values.cpp).
  const bool is_strided = divisor.layout() == c10::kStrided &&
                          (!dividend.isTensor() || dividend.toTensor().layout() == c10::kStrided);
  if (takes_zeros && device_type() == c10::DeviceType::CUDA && is_strided) return;
  const OutputAllocations::Suspended on_host;
  Tensor prepared = takes_zeros ? without_zeros(divisor) : divisor;
  if (dividend.isTensor()) prepared = without_overflow(dividend.toTensor(), prepared);
  stack[first + 1] = std::move(prepared);
}

}  // namespace loom::glue
