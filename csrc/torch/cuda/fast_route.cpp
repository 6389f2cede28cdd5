#include "torch/cuda/fast_route.h"

#include <ATen/native/ForeachUtils.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

constexpr std::string_view kPrefix = "aten::_foreach_";

// CUDA's kernels of these take no whole numbers.
constexpr std::string_view kFloatOnly[] = {
    "acos",    "addcdiv", "addcmul", "asin",   "atan",       "ceil",  "clamp_max", "clamp_min",
    "cos",     "cosh",    "div",     "erf",    "erfc",       "exp",   "expm1",     "floor",
    "frac",    "lerp",    "lgamma",  "log",    "log10",      "log1p", "log2",      "maximum",
    "minimum", "norm",    "pow",     "powsum", "reciprocal", "round", "rsqrt",     "sigmoid",
    "sin",     "sinh",    "sqrt",    "tan",    "tanh",       "trunc"};
// … and these take no complex ones.
constexpr std::string_view kRealOnly[] = {"abs", "norm", "powsum"};
// … and these orders only.
constexpr std::string_view kNorms[] = {"norm", "powsum"};
constexpr double kOrders[] = {0, 1, 2, std::numeric_limits<double>::infinity()};
// Their numbers are converted to the tensors' dtype, whatever it is.
constexpr std::string_view kConverting[] = {"lerp", "norm", "powsum"};

template <size_t kSize>
bool is_among(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool has_cuda_kernels(const at::Tensor& tensor) {
  return FastRoute::is_asked() && tensor.device().type() == device_type() &&
         devices().device(tensor.device().index()).chip().is_gpu;
}

template <typename Predicate>
bool is_any(at::TensorList tensors, Predicate predicate) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return predicate(tensor.scalar_type()); });
}

}  // namespace

bool FastRoute::is_taken() const {
  if (lists_.empty() || lists_[0].empty() || !has_cuda_kernels(lists_[0][0])) return true;
  // What does not fit together is refused elsewhere.
  const size_t size = lists_[0].size();
  if (std::any_of(lists_.begin(), lists_.end(), [&](at::TensorList list) { return list.size() != size; }))
    return true;
  std::string_view name = op_.substr(kPrefix.size());
  if (name.back() == '_') name.remove_suffix(1);
  // The powers of one number have a kernel of their own.
  if (is_among(kFloatOnly, name) && !starts_with_number_ &&
      is_any(lists_[0], [](c10::ScalarType type) { return c10::isIntegralType(type, true); })) {
    return false;
  }
  if (is_among(kRealOnly, name) && is_any(lists_[0], c10::isComplexType)) return false;
  if (is_among(kNorms, name) && !scalars_.empty() && !scalars_[0].isComplex() &&
      std::find(std::begin(kOrders), std::end(kOrders), scalars_[0].toDouble()) == std::end(kOrders)) {
    return false;
  }
  const at::ArrayRef<at::Scalar> scalars =
      is_among(kConverting, name) || starts_with_number_ ? at::ArrayRef<at::Scalar>() : scalars_;
  if (scalars.size() > 1 && scalars.size() != size) return true;
  return at::native::check_fast_path_restrictions(lists_, scalars,
                                                  /*does_op_promote_integer_inputs_to_float=*/false,
                                                  /*skip_cross_list_dtype_check=*/name == "copy");
}

}  // namespace loom::glue
