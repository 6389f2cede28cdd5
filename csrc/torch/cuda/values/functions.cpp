#include "torch/cuda/values/functions.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/div.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "torch/cuda/values/reductions.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

bool is_real(const c10::IValue& value) {
  return value.isTensor() && is_summed(value.toTensor().scalar_type()) &&
         value.toTensor().layout() == c10::kStrided && !value.toTensor().is_meta();
}

// Tensors of one real dtype. Others are converted first, which the engine's kernels do as well.
bool are_alike(const c10::IValue& first, const c10::IValue& second) {
  return is_real(first) && is_real(second) &&
         first.toTensor().scalar_type() == second.toTensor().scalar_type();
}

bool is_of_16_bits(const c10::IValue& value) {
  return is_real(value) && is_narrow(value.toTensor().scalar_type());
}

// A function for each dtype, which takes and gives numbers of it. By address: one loop serves all.
template <typename... Same>
struct Functions {
  template <typename T>
  using Address = T (*)(std::conditional_t<true, T, Same>...);
  Address<float> of_float;
  Address<double> of_double;
  Address<c10::Half> of_half;
  Address<c10::BFloat16> of_bfloat16;

  template <typename T>
  Address<T> get() const {
    if constexpr (std::is_same_v<T, float>) return of_float;
    if constexpr (std::is_same_v<T, double>) return of_double;
    if constexpr (std::is_same_v<T, c10::Half>) return of_half;
    if constexpr (std::is_same_v<T, c10::BFloat16>) return of_bfloat16;
  }
};
using OfOne = Functions<void>;
using OfTwo = Functions<void, void>;

template <typename T, typename Address, size_t... kOperands>
void fill(at::TensorIterator& iterator, Address compute, std::index_sequence<kOperands...>) {
  iterator.for_each([compute](char** data, const int64_t* strides, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      *reinterpret_cast<T*>(data[0] + i * strides[0]) =
          compute(*reinterpret_cast<const T*>(data[kOperands + 1] + i * strides[kOperands + 1])...);
    }
  });
}

template <typename... Same>
Tensor filled(at::TensorIterator iterator, const Functions<Same...>& functions) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iterator.common_dtype(), "values_cuda", [&] {
    fill<scalar_t>(iterator, functions.template get<scalar_t>(), std::index_sequence_for<Same...>());
  });
  return iterator.output();
}

// `compute` captures nothing: it is its address for each dtype.
template <typename Compute>
Tensor each_of(const Tensor& self, Compute compute) {
  Tensor result;
  return filled(at::TensorIterator::unary_op(result, self), OfOne{compute, compute, compute, compute});
}

template <typename Compute>
Tensor each_of(const Tensor& first, const Tensor& second, Compute compute) {
  Tensor result;
  return filled(at::TensorIterator::binary_op(result, first, second),
                OfTwo{compute, compute, compute, compute});
}

// The operand of a binary op: a tensor, or a number that decides no dtype.
bool is_number(const c10::IValue& value) {
  if (!value.isTensor()) return value.isInt() || value.isDouble();
  return value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() && !value.toTensor().is_complex();
}
Tensor operand_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  Tensor number = at::scalar_tensor(value.toScalar(), at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

template <typename Compute>
Tensors of_numbers(Arguments arguments, Compute compute) {
  const bool is_plain = is_number(arguments[1])   ? is_real(arguments[0])
                        : is_number(arguments[0]) ? is_real(arguments[1])
                                                  : are_alike(arguments[0], arguments[1]);
  if (!is_plain) return {};
  return {each_of(operand_of(arguments[0]), operand_of(arguments[1]), compute)};
}

template <typename Compute>
Tensors of_halves(Arguments arguments, Compute compute) {
  if (!is_of_16_bits(arguments[0]) || !are_alike(arguments[0], arguments[1])) return {};
  return {each_of(arguments[0].toTensor(), arguments[1].toTensor(), compute)};
}

float times_log_of(float x, float y, float log) {
  if (std::isnan(y)) return y;
  return x == 0 ? 0 : x * log;
}

}  // namespace

// The CPU's vectors give NaN where the quotient is large.
Tensors modulus_of_numbers(Arguments arguments) {
  return of_numbers(arguments, []<typename Number>(Number a, Number b) {
    using T = at::opmath_type<Number>;
    return static_cast<Number>(std::fmod(static_cast<T>(a), static_cast<T>(b)));
  });
}

Tensors remainder_of_numbers(Arguments arguments) {
  return of_numbers(arguments, []<typename Number>(Number a, Number b) {
    using T = at::opmath_type<Number>;
    const T divisor = b, rest = std::fmod(static_cast<T>(a), divisor);
    return static_cast<Number>(rest != 0 && std::signbit(rest) != std::signbit(divisor) ? rest + divisor
                                                                                        : rest);
  });
}

Tensors floored_quotient(Arguments arguments) {
  if (!is_of_16_bits(arguments[0]) || !are_alike(arguments[0], arguments[1])) return {};
  const Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor();
  return {at::div(self.to(at::kFloat), other.to(at::kFloat), "floor").to(self.scalar_type())};
}

// The logarithm stays a float32.
Tensors times_log(Arguments arguments) {
  return of_halves(arguments, []<typename Number>(Number x, Number y) {
    return static_cast<Number>(times_log_of(x, y, std::log(static_cast<float>(y))));
  });
}
Tensors times_log_of_more(Arguments arguments) {
  return of_halves(arguments, []<typename Number>(Number x, Number y) {
    return static_cast<Number>(times_log_of(x, y, std::log1p(static_cast<float>(y))));
  });
}
Tensors entropy(Arguments arguments) {
  if (!is_of_16_bits(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    const float value = x;
    if (std::isnan(value) || value == 0) return value == 0 ? static_cast<Number>(0) : x;
    return static_cast<Number>(value > 0 ? -value * std::log(value) : -INFINITY);
  })};
}

// The CPU's vectors overflow to infinity some numbers early.
Tensors hyperbolic_sine(Arguments arguments) {
  if (!is_real(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    return static_cast<Number>(std::sinh(static_cast<at::opmath_type<Number>>(x)));
  })};
}
Tensors hyperbolic_cosine(Arguments arguments) {
  if (!is_real(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    return static_cast<Number>(std::cosh(static_cast<at::opmath_type<Number>>(x)));
  })};
}

// The CPU's vectors of 16 bits have an absolute error of 1e-7: small results are off by a percent, or zero.
Tensors error_function(Arguments arguments) {
  if (!is_of_16_bits(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    return static_cast<Number>(std::erf(static_cast<float>(x)));
  })};
}

// A sixth is a float32 number, also for float64.
constexpr float kSixth = 1.0f / 6.0f;
template <typename T>
T clamped(T x) {
  return std::isnan(x) ? x : std::min(std::max(x + T(3), T(0)), T(6));
}
Tensors hard_sigmoid(Arguments arguments) {
  if (!is_real(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    using T = at::opmath_type<Number>;
    return static_cast<Number>(clamped(static_cast<T>(x)) * static_cast<T>(kSixth));
  })};
}
Tensors hard_swish(Arguments arguments) {
  if (!is_real(arguments[0])) return {};
  return {each_of(arguments[0].toTensor(), []<typename Number>(Number x) {
    using T = at::opmath_type<Number>;
    return static_cast<Number>(static_cast<T>(x) * clamped(static_cast<T>(x)) * static_cast<T>(kSixth));
  })};
}

// Half precision is computed in float32 to the end.
Tensors logit(Arguments arguments) {
  if (!is_of_16_bits(arguments[0])) return {};
  const Tensor& self = arguments[0].toTensor();
  const auto eps =
      arguments[1].isNone() ? std::optional<double>() : std::optional<double>(arguments[1].toDouble());
  return {at::logit(self.to(at::kFloat), eps).to(self.scalar_type())};
}

// Small whole exponents multiply in the dtype, rounding at each step.
Tensors power(Arguments arguments) {
  if (!is_of_16_bits(arguments[0]) || !is_number(arguments[1])) return {};
  const Tensor& self = arguments[0].toTensor();
  const double exponent =
      arguments[1].isTensor() ? arguments[1].toTensor().item<double>() : arguments[1].toScalar().toDouble();
  if (exponent == 3) {
    return {each_of(
        self, []<typename Number>(Number x) { return static_cast<Number>(static_cast<Number>(x * x) * x); })};
  }
  if (exponent == -2) {
    return {each_of(self, []<typename Number>(Number x) {
      return static_cast<Number>(1.0 / static_cast<double>(static_cast<Number>(x * x)));
    })};
  }
  return {};
}

// The square is fused into the difference; half precision rounds at each step.
Tensors tanh_gradient(Arguments arguments) {
  if (!are_alike(arguments[0], arguments[1])) return {};
  return {each_of(
      arguments[0].toTensor(), arguments[1].toTensor(), []<typename Number>(Number gradient, Number y) {
        if constexpr (std::is_same_v<Number, float> || std::is_same_v<Number, double>) {
          return gradient * std::fma(-y, y, Number(1));
        } else {
          return static_cast<Number>(gradient * static_cast<Number>(Number(1) - static_cast<Number>(y * y)));
        }
      })};
}
Tensors sigmoid_gradient(Arguments arguments) {
  return of_halves(arguments, []<typename Number>(Number gradient, Number y) {
    return static_cast<Number>(static_cast<Number>(gradient * static_cast<Number>(Number(1) - y)) * y);
  });
}

// What is no number is not below a bound: it gets the gradient of large numbers.
Tensors elu_gradient(Arguments arguments) {
  if (!are_alike(arguments[0], arguments[5])) return {};
  const Tensor &gradient = arguments[0].toTensor(), &self = arguments[5].toTensor();
  const Tensor result = at::elu_backward(gradient, arguments[1].toScalar(), arguments[2].toScalar(),
                                         arguments[3].toScalar(), arguments[4].toBool(), self);
  return {at::where(self.isnan(), at::mul(gradient, arguments[2].toScalar()), result)};
}
Tensors hard_swish_gradient(Arguments arguments) {
  if (!are_alike(arguments[0], arguments[1])) return {};
  const Tensor &gradient = arguments[0].toTensor(), &self = arguments[1].toTensor();
  return {at::where(self.isnan(), gradient, at::hardswish_backward(gradient, self))};
}

}  // namespace loom::glue
