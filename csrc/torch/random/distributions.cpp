// uniform_, normal_ and what is made of their numbers, one by one.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/view_as_real.h>

#include <limits>

#include "torch/random/nullary.h"
#include "torch/random/ops.h"

namespace loom::glue::cuda_random {

namespace {

template <typename T>
using Uniform = std::conditional_t<std::is_same_v<T, double>, Uniform64, Uniform32>;
template <typename T>
using Normal = std::conditional_t<std::is_same_v<T, double>, Normal64, Normal32>;

// numbers * scale + shift, rounded once.
inline void scale_and_shift(float* numbers, int64_t count, float scale, float shift) {
  if (scale == 1 && shift == 0) return;
  random::kernels().affine(numbers, static_cast<size_t>(count), scale, shift);
}
inline void scale_and_shift(double* numbers, int64_t count, double scale, double shift) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = std::fma(numbers[i], scale, shift);
}
inline void take_logarithms(float* numbers, int64_t count) {
  random::kernels().log(numbers, static_cast<size_t>(count));
}
inline void take_logarithms(double* numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = std::log(numbers[i]);
}

template <typename T>
struct Between {
  static constexpr bool kIsPrepared = true;
  T from, to;
  Wide<T> range;
  void prepare(Wide<T>* numbers, int64_t count) const {
    scale_and_shift(numbers, count, range, static_cast<Wide<T>>(from));
    if constexpr (std::is_same_v<T, float>) {
      random::kernels().replace(numbers, static_cast<size_t>(count), to, from);
    } else if constexpr (std::is_same_v<T, double>) {
      for (int64_t i = 0; i < count; ++i) numbers[i] = value_of(numbers[i]);
    }
  }
  // Numbers are above 0 and up to 1: the upper bound becomes the lower.
  T value_of(Wide<T> number) const {
    const T value = static_cast<T>(number);
    return value == to ? from : value;
  }
};

template <typename>
struct UniformKernel {
  void operator()(Iterator& iter, double from, double to, Given) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "uniform_kernel_cuda", [&] {
      const auto low = static_cast<scalar_t>(from), high = static_cast<scalar_t>(to);
      fill<scalar_t, Uniform<scalar_t>>(
          iter, Current::draws(), Between<scalar_t>{low, high, static_cast<Wide<scalar_t>>(high - low)});
    });
  }
};

template <typename T>
struct Shifted {
  static constexpr bool kIsPrepared = true;
  Wide<T> mean, std;
  void prepare(Wide<T>* numbers, int64_t count) const { scale_and_shift(numbers, count, std, mean); }
  T value_of(Wide<T> number) const { return static_cast<T>(number); }
};

template <typename>
struct NormalKernel {
  void operator()(const at::TensorBase& self, double mean, double std, Given) {
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "normal_kernel_cuda", [&] {
      using Number = Wide<scalar_t>;
      fill<scalar_t, Normal<scalar_t>>(
          iter, Current::draws(), Shifted<scalar_t>{static_cast<Number>(mean), static_cast<Number>(std)});
    });
  }
};

template <typename T>
struct Exponential {
  static constexpr bool kIsPrepared = false;
  Wide<T> mean, std;
  void prepare(Wide<T>* numbers, int64_t count) const { scale_and_shift(numbers, count, std, mean); }
  T value_of(Wide<T> number) const {
    return static_cast<T>(static_cast<Wide<T>>(std::exp(static_cast<double>(number))));
  }
};

template <typename>
struct LogNormalKernel {
  void operator()(Iterator& iter, double mean, double std, Given) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "log_normal_cuda", [&] {
      using Number = Wide<scalar_t>;
      fill<scalar_t, Normal<scalar_t>>(
          iter, Current::draws(), Exponential<scalar_t>{static_cast<Number>(mean), static_cast<Number>(std)});
    });
  }
};

template <typename T>
struct Waiting {
  static constexpr bool kIsPrepared = true;
  double scale;  // -1 / rate: the product with it is rounded once
  void prepare(Wide<T>* numbers, int64_t count) const {
    using Number = Wide<T>;
    constexpr Number kHalfStep = std::numeric_limits<Number>::epsilon() / 2;
    // The logarithm of numbers close to 1 is kept from being 0, also in half precision.
    take_logarithms(numbers, count);
    const Number limit = std::log(Number{1} - kHalfStep);
    for (int64_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<Number>(scale * (numbers[i] >= limit ? -kHalfStep : numbers[i]));
    }
  }
  T value_of(Wide<T> number) const { return static_cast<T>(number); }
};

template <typename>
struct ExponentialKernel {
  void operator()(Iterator& iter, double rate, Given) {
    TORCH_CHECK(at::isFloatingType(iter.dtype()),
                "Exponential distribution is a continuous probability distribution. dtype must be a floating "
                "point but you specified ",
                iter.dtype());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "exponential_cuda", [&] {
      fill<scalar_t, Uniform<scalar_t>>(iter, Current::draws(), Waiting<scalar_t>{-1.0 / rate});
    });
  }
};

template <typename T>
struct Trials {
  static constexpr bool kIsPrepared = false;
  Wide<T> log_failure;
  void prepare(Wide<T>* numbers, int64_t count) const { take_logarithms(numbers, count); }
  T value_of(Wide<T> number) const { return static_cast<T>(std::ceil(number / log_failure)); }
};

template <typename>
struct GeometricKernel {
  void operator()(Iterator& iter, double p, Given) {
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "geometric_cuda", [&] {
      fill<scalar_t, Uniform<scalar_t>>(iter, Current::draws(),
                                        Trials<scalar_t>{std::log1p(-static_cast<Wide<scalar_t>>(p))});
    });
  }
};

template <typename>
struct CauchyKernel {
  void operator()(Iterator& iter, double median, double sigma, Given) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "cauchy_cuda", [&] {
      using Number = Wide<scalar_t>;
      const auto own_median = static_cast<Number>(median), own_sigma = static_cast<Number>(sigma);
      fill<scalar_t, Uniform<scalar_t>>(
          iter, Current::draws(), Plain{[=](Number number) {
            constexpr Number kStep = std::numeric_limits<Number>::epsilon();
            if constexpr (std::is_same_v<Number, float>) number = std::clamp(number, kStep, 1 - kStep);
            const Number angle = static_cast<Number>(3.14159265358979323846) * (number - Number{0.5});
            const auto tangent = static_cast<Number>(std::tan(static_cast<double>(angle)));
            return static_cast<scalar_t>(std::fma(own_sigma, tangent, own_median));
          }});
    });
  }
};

template <typename>
struct BernoulliKernel {
  void operator()(const at::TensorBase& self, double p, Given) {
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    AT_DISPATCH_ALL_TYPES_AND3(
        at::kHalf, at::kBFloat16, at::kBool, iter.dtype(), "bernoulli_scalar_cuda_", [&] {
          const auto limit = static_cast<Wide<scalar_t>>(p);
          fill<scalar_t, Uniform<scalar_t>>(iter, Current::draws(), Plain{[=](Wide<scalar_t> number) {
                                              return static_cast<scalar_t>(number < limit);
                                            }});
        });
  }
};

template <auto fill_with>
Results in_place(Arguments arguments, Draws& draws) {
  const Current scope(draws);
  at::Tensor self = arguments[0].toTensor();
  fill_with(self, arguments);
  return {self};
}

void uniform(at::Tensor& self, Arguments arguments) {
  templates::uniform_impl_<UniformKernel, NoGenerator>(self, arguments[1].toDouble(), arguments[2].toDouble(),
                                                       std::nullopt);
}
void normal(at::Tensor& self, Arguments arguments) {
  templates::normal_impl_<NormalKernel, NoGenerator>(self, arguments[1].toDouble(), arguments[2].toDouble(),
                                                     std::nullopt);
}
void log_normal(at::Tensor& self, Arguments arguments) {
  templates::log_normal_impl_<LogNormalKernel, NoGenerator>(self, arguments[1].toDouble(),
                                                            arguments[2].toDouble(), std::nullopt);
}
void exponential(at::Tensor& self, Arguments arguments) {
  templates::exponential_impl_<ExponentialKernel, NoGenerator>(self, arguments[1].toDouble(), std::nullopt);
}
void geometric(at::Tensor& self, Arguments arguments) {
  templates::geometric_impl_<GeometricKernel, NoGenerator>(self, arguments[1].toDouble(), std::nullopt);
}
void cauchy(at::Tensor& self, Arguments arguments) {
  templates::cauchy_impl_<CauchyKernel, NoGenerator>(self, arguments[1].toDouble(), arguments[2].toDouble(),
                                                     std::nullopt);
}
void bernoulli(at::Tensor& self, Arguments arguments) {
  templates::bernoulli_impl_<BernoulliKernel, NoGenerator>(self, arguments[1].toDouble(), std::nullopt);
}

// Of means, of standard deviations, or of both.
Results normal_around(Arguments arguments, Draws& draws) {
  const Current scope(draws);
  if (!arguments[0].isTensor()) {
    return {templates::normal_impl<NormalKernel, NoGenerator>(arguments[0].toDouble(),
                                                              arguments[1].toTensor(), std::nullopt)};
  }
  const at::Tensor& mean = arguments[0].toTensor();
  if (!arguments[1].isTensor()) {
    return {templates::normal_impl<NormalKernel, NoGenerator>(mean, arguments[1].toDouble(), std::nullopt)};
  }
  return {templates::normal_impl<NormalKernel, NoGenerator>(mean, arguments[1].toTensor(), std::nullopt)};
}

bool is_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kComplexDouble;
}

uint64_t step_of_self(const RandomGrid& grid, Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return step_of_fill(grid, self, is_double(self) ? 2 : 4);
}

// Of both forms that are operands, the result has the sizes to which they expand.
uint64_t step_around(const RandomGrid& grid, Arguments arguments) {
  const bool has_mean = arguments[0].isTensor(), has_std = arguments[1].isTensor();
  const at::Tensor& first = arguments[has_mean ? 0 : 1].toTensor();
  int64_t count = first.numel();
  if (has_mean && has_std)
    count = c10::multiply_integers(at::infer_size(first.sizes(), arguments[1].toTensor().sizes()));
  if (count == 0) return 0;
  if (first.is_complex()) count *= 2;
  return policy_of(grid, count, is_double(first) ? 2 : 4).step;
}

constexpr RandomOp kDistributionsRows[] = {
    {"aten::uniform_", step_of_self, in_place<&uniform>},
    {"aten::normal_", step_of_self, in_place<&normal>},
    {"aten::log_normal_", step_of_self, in_place<&log_normal>},
    {"aten::exponential_", step_of_self, in_place<&exponential>},
    {"aten::geometric_", step_of_self, in_place<&geometric>},
    {"aten::cauchy_", step_of_self, in_place<&cauchy>},
    {"aten::bernoulli_.float", step_of_self, in_place<&bernoulli>},
    {"aten::normal.Tensor_float", step_around, normal_around},
    {"aten::normal.Tensor_float_out", step_around, normal_around},
    {"aten::normal.float_Tensor", step_around, normal_around},
    {"aten::normal.float_Tensor_out", step_around, normal_around},
    {"aten::normal.Tensor_Tensor", step_around, normal_around},
    {"aten::normal.Tensor_Tensor_out", step_around, normal_around},
};

}  // namespace

const c10::ArrayRef<RandomOp> kDistributionOps = kDistributionsRows;

void fill_exponential(at::Tensor& self, Draws& draws) {
  const Current scope(draws);
  templates::exponential_impl_<ExponentialKernel, NoGenerator>(self, 1.0, std::nullopt);
}

uint64_t step_of_fill(const RandomGrid& grid, const at::Tensor& self, int64_t unroll) {
  const int64_t count = self.numel() * (self.is_complex() ? 2 : 1);
  if (count == 0) return 0;
  uint64_t step = policy_of(grid, count, unroll).step;
  // Most tensors end here: an iterator costs as much as a small kernel.
  constexpr int64_t kFew = int64_t{1} << 26;
  if (count <= kFew && self.is_contiguous()) return step;
  const at::Tensor real = self.is_complex() ? at::view_as_real(self) : self;
  auto iter = at::TensorIterator::borrowing_nullary_op(real);
  if (iter.can_use_32bit_indexing()) return step;
  for (auto& part : iter.with_32bit_indexing()) step += policy_of(grid, part.numel(), unroll).step;
  return step;
}

}  // namespace loom::glue::cuda_random
