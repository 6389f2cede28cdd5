#include "torch/cuda/values/values.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "torch/core/device.h"
#include "torch/cuda/values/arithmetic.h"
#include "torch/cuda/values/atomics.h"
#include "torch/cuda/values/functions.h"
#include "torch/cuda/values/list_norms.h"
#include "torch/cuda/values/optimizers.h"
#include "torch/cuda/values/reductions.h"
#include "torch/cuda/values/scans.h"
#include "torch/cuda/values/ties.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

bool is_integer(const Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

// The reciprocal is rounded first, then the product.
Tensors divide_by_number(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  const bool is_number = !arguments[1].isTensor();
  if (self.is_meta() || self.is_complex() || self.layout() != c10::kStrided) return {};
  if (!is_number && !arguments[1].toTensor().unsafeGetTensorImpl()->is_wrapped_number()) return {};
  if (is_number ? arguments[1].isComplexDouble() : arguments[1].toTensor().is_complex()) return {};
  const bool truncates = arguments.size() > 2 && arguments[2].isString();
  if (truncates && arguments[2].toStringView() != "trunc") return {};
  if (truncates && !self.is_floating_point()) return {};
  const c10::ScalarType dtype =
      self.is_floating_point() ? self.scalar_type() : c10::typeMetaToScalarType(c10::get_default_dtype());
  const double divisor =
      is_number ? arguments[1].toScalar().toDouble() : arguments[1].toTensor().item<double>();
  Tensor result = at::mul(self.to(dtype), rounded_reciprocal(divisor, dtype));
  return {truncates ? result.trunc_() : result};
}

// The kernel computes in the dtype of the result: operands are converted to it first.
template <Tensor (*compute)(const Tensor&, const Tensor&)>
Tensors choose_in_result_dtype(Arguments arguments) {
  if (arguments.size() != 3) return {};
  const Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor(),
               &out = arguments[2].toTensor();
  if (out.is_meta() || !is_integer(self) || !is_integer(other) || !is_integer(out)) return {};
  if (at::native::result_type({self, other}) == out.scalar_type()) return {};
  return {compute(self.to(out.scalar_type()), other.to(out.scalar_type()))};
}

// What a division by zero gives: all bits of the quotient and of the remainder are set, of 64 those of the
// lower half where the dividend is a number of 32 bits without a sign. Floor division goes one lower where
// the dividend has a sign.
Tensor of_zero(const Tensor& dividend, bool is_floored) {
  Tensor found = at::full_like(dividend, -1);
  if (dividend.scalar_type() == at::kLong) {
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    found.masked_fill_(dividend.ge(0).logical_and(dividend.le(kMost)), kMost);
  }
  return is_floored ? found.sub_(dividend.lt(0).to(found.scalar_type())) : found;
}

enum class Part : uint8_t { kFloored, kTruncated, kRemainder, kModulus };

Tensor divided_whole(const Tensor& self, const Tensor& other, Part part) {
  const Tensor is_zero = other.eq(0);
  // The least number over -1 has no quotient on the CPU: it wraps around.
  const Tensor wraps = c10::isSignedType(other.scalar_type()) ? other.eq(-1) : at::zeros_like(is_zero);
  const Tensor safe = at::where(is_zero.logical_or(wraps), 1, other).to(other.scalar_type());
  const bool is_quotient = part == Part::kFloored || part == Part::kTruncated;
  Tensor result = part == Part::kFloored     ? at::floor_divide(self, safe)
                  : part == Part::kTruncated ? at::div(self, safe, "trunc")
                  : part == Part::kRemainder ? at::remainder(self, safe)
                                             : at::fmod(self, safe);
  if (is_quotient) result = at::where(wraps, at::neg(result), result);
  return at::where(is_zero, of_zero(self.expand_as(result), part == Part::kFloored), result);
}

Tensors divide_whole(Arguments arguments, Part part) {
  if (!arguments[0].isTensor() && !arguments[1].isTensor()) return {};
  const Tensor& any = arguments[arguments[0].isTensor() ? 0 : 1].toTensor();
  if (any.is_meta() || any.layout() != c10::kStrided) return {};
  for (const c10::IValue& value : arguments.slice(0, 2)) {
    if (value.isTensor() ? !c10::isIntegralType(value.toTensor().scalar_type(), /*includeBool=*/true)
                         : !value.isInt())
      return {};
  }
  const auto tensor_of = [&](const c10::IValue& value) {
    if (value.isTensor()) return value.toTensor();
    Tensor number = at::scalar_tensor(value.toScalar(), at::kLong);
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  };
  const Tensor self = tensor_of(arguments[0]), other = tensor_of(arguments[1]);
  const c10::ScalarType dtype = at::native::result_type({self, other});
  if (dtype == at::kBool) return {};
  return {divided_whole(self.to(dtype), other.to(dtype), part)};
}

template <Part kPart>
Tensors divide_whole(Arguments arguments) {
  return divide_whole(arguments, kPart);
}

// (self, other), or with a rounding mode, and an out.
Tensors divide(Arguments arguments) {
  Tensors result = divide_by_number(arguments);
  if (!result.empty() || arguments.size() < 3 || !arguments[2].isString()) return result;
  const std::string_view mode = arguments[2].toStringView();
  if (mode != "floor" && mode != "trunc") return {};  // the engine says what is wrong
  if (mode == "floor") result = floored_quotient(arguments);
  return !result.empty() ? result
                         : divide_whole(arguments, mode == "floor" ? Part::kFloored : Part::kTruncated);
}

// (start, end, step, out): each number is computed on its own, with one rounding.
Tensors range_of_numbers(Arguments arguments) {
  if (arguments.size() != 4 || !arguments[3].isTensor() || !arguments[2].isScalar()) return {};
  const Tensor& out = arguments[3].toTensor();
  if (out.is_meta() || !out.is_floating_point() || arguments[0].isComplexDouble()) return {};
  const double start = arguments[0].toScalar().toDouble(), end = arguments[1].toScalar().toDouble(),
               step = arguments[2].toScalar().toDouble();
  const double size = std::ceil((end - start) / step);
  if (!(size > 0) || size >= 0x1p40) return {};
  const bool is_wide = out.scalar_type() == at::kDouble;
  Tensor result =
      at::empty({static_cast<int64_t>(size)}, out.options().dtype(is_wide ? at::kDouble : at::kFloat));
  const auto fill = [&](auto first, auto by) {
    using T = decltype(first);
    auto* const values = result.mutable_data_ptr<T>();
    at::parallel_for(0, result.numel(), 1 << 15, [&](int64_t begin, int64_t until) {
      for (int64_t i = begin; i < until; ++i) values[i] = std::fma(by, static_cast<T>(i), first);
    });
  };
  is_wide ? fill(start, step) : fill(static_cast<float>(start), static_cast<float>(step));
  return {result.to(out.scalar_type())};
}

// As CUDA's conversions: numbers beyond the range become its ends; NaN becomes 0, and the highest bit alone
// where the source is float64 or the result has 64 bits.
template <typename To, typename From>
To converted_wide(From from) {
  constexpr bool kIsWide = std::is_same_v<From, double> || sizeof(To) == 8;
  constexpr To kLeast = std::numeric_limits<To>::min(), kMost = std::numeric_limits<To>::max();
  constexpr From kBeyond = From(2) * From(kMost / 2 + 1);
  constexpr To kHighestBit = std::is_signed_v<To> ? kLeast : To(kMost / 2 + 1);
  if (from != from) return kIsWide ? kHighestBit : To(0);
  if (from >= kBeyond) return kMost;
  return from < From(kLeast) ? kLeast : static_cast<To>(from);
}

// Narrower numbers are the lower bits of those of 32, and bytes of those of 64.
template <typename To, typename From>
To converted(From from) {
  if constexpr (std::is_same_v<To, uint8_t>) return static_cast<To>(converted_wide<int64_t>(from));
  if constexpr (sizeof(To) >= sizeof(int32_t)) return converted_wide<To>(from);
  return static_cast<To>(converted_wide<std::conditional_t<std::is_unsigned_v<To>, uint32_t, int32_t>>(from));
}

// linspace(start, end, steps, out): the step is a float32, and the upper half is counted down from the end.
Tensors linspace_of_integers(Arguments arguments) {
  if (arguments.size() != 4 || !arguments[0].isScalar() || !arguments[1].isScalar() ||
      !arguments[3].isTensor())
    return {};
  const Tensor& out = arguments[3].toTensor();
  const int64_t steps = arguments[2].toInt();
  if (out.is_meta() || !is_integer(out) || steps < 2) return {};
  Tensor result = at::empty({steps}, out.options());
  AT_DISPATCH_INTEGRAL_TYPES(out.scalar_type(), "linspace_cuda", [&] {
    const auto start = arguments[0].toScalar().to<scalar_t>(), end = arguments[1].toScalar().to<scalar_t>();
    const float first = static_cast<float>(start), last = static_cast<float>(end);
    const float step = (last - first) / static_cast<float>(steps - 1);
    auto* const values = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < steps; ++i) {
      values[i] =
          converted<scalar_t>(i < steps / 2 ? std::fma(step, static_cast<float>(i), first)
                                            : std::fma(-step, static_cast<float>(steps - i - 1), last));
    }
  });
  return {result};
}

template <typename To>
void convert(const Tensor& from, const Tensor& to) {
  const int64_t count = from.numel();
  auto* const out = to.mutable_data_ptr<To>();
  const auto run = [&](const auto* in) {
    at::parallel_for(0, count, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = converted<To>(in[i]);
    });
  };
  if (from.scalar_type() == at::kDouble) return run(from.const_data_ptr<double>());
  run(from.const_data_ptr<float>());
}

Tensors copy_converting(Arguments arguments) {
  const Tensor &self = arguments[0].toTensor(), &source = arguments[1].toTensor();
  if (self.is_meta() || !converts_as_cuda(self, source)) return {};
  const c10::ScalarType wide = source.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor from = source.to(wide).expand(self.sizes()).contiguous();
  const Tensor to = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  AT_DISPATCH_V2(self.scalar_type(), "copy_cuda", AT_WRAP([&] { convert<scalar_t>(from, to); }),
                 AT_EXPAND(AT_INTEGRAL_TYPES_V2));
  if (!to.is_same(self)) self.copy_(to);
  return {self};
}

// The engine refuses to be given another dtype.
template <OwnKernel kScan>
Tensors scan_in_place(Arguments arguments) {
  const c10::IValue& dtype = arguments[2];
  if (dtype.isInt() && dtype.toScalarType() != arguments[0].toTensor().scalar_type()) return {};
  return kScan(arguments);
}

// One way, or where it has nothing to say the other.
template <OwnKernel kFirst, OwnKernel kSecond>
Tensors either(Arguments arguments) {
  Tensors result = kFirst(arguments);
  return result.empty() ? kSecond(arguments) : result;
}

struct Row {
  std::string_view name;
  OwnKernel kernel;
};
constexpr Row kRows[] = {
    {"aten::_foreach_add", add_scaled_lists<Sum::kAdded, false>},
    {"aten::_foreach_add_", add_scaled_lists<Sum::kAdded, true>},
    {"aten::_foreach_addcdiv", add_terms<Term::kQuotient, false>},
    {"aten::_foreach_addcdiv_", add_terms<Term::kQuotient, true>},
    {"aten::_foreach_addcmul", add_terms<Term::kProduct, false>},
    {"aten::_foreach_addcmul_", add_terms<Term::kProduct, true>},
    {"aten::_foreach_div", divide_lists<false>},
    {"aten::_foreach_div_", divide_lists<true>},
    {"aten::_foreach_mul", multiply_lists<false>},
    {"aten::_foreach_mul_", multiply_lists<true>},
    {"aten::_foreach_norm", norms_of_lists},
    {"aten::_foreach_sqrt", exact_roots<false>},
    {"aten::_foreach_sqrt_", exact_roots<true>},
    {"aten::_foreach_sub", add_scaled_lists<Sum::kSubtracted, false>},
    {"aten::_foreach_sub_", add_scaled_lists<Sum::kSubtracted, true>},
    {"aten::_fused_adam_", adam_step<false>},
    {"aten::_fused_adamw_", adam_step<true>},
    {"aten::_fused_sgd_", sgd_step},
    {"aten::_log_softmax_backward_data", log_softmax_gradient},
    {"aten::add", add_scaled<Sum::kAdded>},
    {"aten::add_", add_scaled<Sum::kAdded>},
    {"aten::addcdiv", add_term<Term::kQuotient, false>},
    {"aten::addcdiv_", add_term<Term::kQuotient, true>},
    {"aten::addcmul", add_term<Term::kProduct, false>},
    {"aten::addcmul_", add_term<Term::kProduct, true>},
    {"aten::arange", range_of_numbers},
    {"aten::bincount", count_weights_in_some_order},
    {"aten::copy_", copy_converting},
    {"aten::cosh", hyperbolic_cosine},
    {"aten::cosh_", hyperbolic_cosine},
    {"aten::cumprod", running_product_in_order},
    {"aten::cumprod_", scan_in_place<running_product_in_order>},
    {"aten::cumsum", running_sum_in_order},
    {"aten::cumsum_", scan_in_place<running_sum_in_order>},
    {"aten::div", divide},
    {"aten::div_", divide},
    {"aten::elu_backward", elu_gradient},
    {"aten::erf", error_function},
    {"aten::erf_", error_function},
    {"aten::floor_divide", either<divide_whole<Part::kFloored>, floored_quotient>},
    {"aten::floor_divide_", either<divide_whole<Part::kFloored>, floored_quotient>},
    {"aten::fmax", choose_in_result_dtype<at::fmax>},
    {"aten::fmin", choose_in_result_dtype<at::fmin>},
    {"aten::fmod", either<divide_whole<Part::kModulus>, modulus_of_numbers>},
    {"aten::fmod_", either<divide_whole<Part::kModulus>, modulus_of_numbers>},
    {"aten::hardsigmoid", hard_sigmoid},
    {"aten::hardsigmoid_", hard_sigmoid},
    {"aten::hardswish", hard_swish},
    {"aten::hardswish_", hard_swish},
    {"aten::hardswish_backward", hard_swish_gradient},
    {"aten::index_add", add_rows_in_some_order},
    {"aten::index_add_", add_rows_in_some_order},
    {"aten::kthvalue", kth_of_slices},
    {"aten::linalg_vector_norm", norm_in_order},
    {"aten::linspace", linspace_of_integers},
    {"aten::logit", logit},
    {"aten::logit_", logit},
    {"aten::maximum", choose_in_result_dtype<at::maximum>},
    {"aten::mean", mean_in_order},
    {"aten::median", median_of_slices<false>},
    {"aten::minimum", choose_in_result_dtype<at::minimum>},
    {"aten::mode", mode_of_slices},
    {"aten::nanmedian", median_of_slices<true>},
    {"aten::nansum", sum_of_numbers_in_order},
    {"aten::pow", power},
    {"aten::pow_", power},
    {"aten::prod", product_in_order},
    {"aten::put", put_sums_in_some_order},
    {"aten::put_", put_sums_in_some_order},
    {"aten::remainder", either<divide_whole<Part::kRemainder>, remainder_of_numbers>},
    {"aten::remainder_", either<divide_whole<Part::kRemainder>, remainder_of_numbers>},
    {"aten::rsub", add_scaled<Sum::kSubtractedFrom>},
    {"aten::scatter_add", scatter_sums_in_some_order},
    {"aten::scatter_add_", scatter_sums_in_some_order},
    {"aten::scatter_reduce", scatter_reduced_in_some_order},
    {"aten::scatter_reduce_", scatter_reduced_in_some_order},
    {"aten::sigmoid_backward", sigmoid_gradient},
    {"aten::sinh", hyperbolic_sine},
    {"aten::sinh_", hyperbolic_sine},
    {"aten::sort", sort_slices},
    {"aten::special_entr", entropy},
    {"aten::special_xlog1py", times_log_of_more},
    {"aten::sqrt", exact_root},
    {"aten::sqrt_", exact_root},
    {"aten::std", variance_in_order<true, false>},
    {"aten::std_mean", variance_in_order<true, true>},
    {"aten::sub", add_scaled<Sum::kSubtracted>},
    {"aten::sub_", add_scaled<Sum::kSubtracted>},
    {"aten::sum", sum_in_order},
    {"aten::tanh_backward", tanh_gradient},
    {"aten::topk", top_of_slices},
    {"aten::var", variance_in_order<false, false>},
    {"aten::var_mean", variance_in_order<false, true>},
    {"aten::xlogy", times_log},
    {"aten::xlogy_", times_log},
};

}  // namespace

OwnKernel cuda_kernel_of(std::string_view name) {
  if (device_type() != c10::DeviceType::CUDA) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
  return found == std::end(kRows) ? nullptr : found->kernel;
}

bool converts_as_cuda(const Tensor& destination, const Tensor& source) {
  return is_integer(destination) && source.is_floating_point() &&
         c10::elementSize(source.scalar_type()) > 1 && destination.layout() == c10::kStrided &&
         source.layout() == c10::kStrided;
}

}  // namespace loom::glue
