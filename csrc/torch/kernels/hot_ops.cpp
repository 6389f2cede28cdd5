// The ops that run without the boxed kernel's stack: `unboxed` in the op table.
#include "torch/core/registration.h"
#include "torch/cuda/values/arithmetic.h"
#include "torch/cuda/values/reductions.h"
#include "torch/dispatch/unboxed.h"
#include "torch/generated/unboxed_headers.inc"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

template <typename At>
struct Hot : Borrowed<At> {};

// Composite softmax asks a CUDA tensor's kernel to convert float16 on the way, which the CPU's refuses.
template <typename At>
struct ConvertingSoftmax {
  static at::Tensor call(const at::Tensor& self, int64_t dim, bool half_to_float) {
    return half_to_float ? Borrowed<At>::call(self.to(c10::kFloat), dim, false)
                         : Borrowed<At>::call(self, dim, false);
  }
};
template <typename At>
struct ConvertingSoftmaxBackward {
  static at::Tensor call(const at::Tensor& grad, const at::Tensor& output, int64_t dim,
                         at::ScalarType input_dtype) {
    const at::ScalarType own = grad.scalar_type();
    if (own == input_dtype) return Borrowed<At>::call(grad, output, dim, own);
    TORCH_CHECK(own == c10::kFloat && input_dtype == c10::kHalf,
                "expected input and grad types to match, or input to be at::Half and grad to be at::Float");
    return Borrowed<At>::call(grad, output, dim, own).to(input_dtype);
  }
};
template <>
struct Hot<at::_ops::_softmax> : ConvertingSoftmax<at::_ops::_softmax> {};
template <>
struct Hot<at::_ops::_log_softmax> : ConvertingSoftmax<at::_ops::_log_softmax> {};
template <>
struct Hot<at::_ops::_softmax_backward_data> : ConvertingSoftmaxBackward<at::_ops::_softmax_backward_data> {};

// Where CUDA's values differ (torch/cuda/values), the boxed kernel has them. `kIsCudas` says so of the
// arguments.
template <typename At, const auto& kIsCudas, typename Otherwise = Borrowed<At>,
          typename Signature = typename At::schema>
struct OrCudas;
template <typename At, const auto& kIsCudas, typename Otherwise, typename Return, typename... Arguments>
struct OrCudas<At, kIsCudas, Otherwise, Return(Arguments...)> {
  static Return call(Arguments... arguments) {
    if (device_type() != c10::DeviceType::CUDA || !kIsCudas(arguments...))
      return Otherwise::call(std::forward<Arguments>(arguments)...);
    static const Op& op = Op::named(At::name, At::overload_name);
    torch::jit::Stack stack{boxed_argument(arguments)...};
    run_boxed(op.handle, &stack);
    if constexpr (std::is_same_v<Return, at::Tensor&>) {
      return written_argument<Arguments...>(std::forward<Arguments>(arguments)...);
    } else if constexpr (!std::is_void_v<Return>) {
      return c10::impl::PopResult<Return>::call(stack);
    }
  }
};

// A quotient by a number of the host.
constexpr auto kQuotient = [](const at::Tensor& self, const at::Tensor& other) {
  return other.unsafeGetTensorImpl()->is_wrapped_number() && !self.is_complex();
};
// A number beside half precision stays in float32, and a product with alpha is fused into the sum.
constexpr auto kScaledSum = is_scaled_as_cuda;
// Products and quotients are fused into sums; roots are rounded once; sums have an order of their own.
constexpr auto kRounded = [](const at::Tensor& self, const auto&...) {
  return is_summed(self.scalar_type());
};
constexpr auto kRoundedList = [](at::TensorList self, const auto&...) {
  return !self.empty() && is_summed(self[0].scalar_type());
};
// Small whole powers of half precision round at each product.
constexpr auto kNarrowPower = [](const at::Tensor& self, const at::Scalar& exponent) {
  return is_narrow(self.scalar_type()) && (exponent.equal(3) || exponent.equal(-2));
};
// As kRounded, of half precision.
constexpr auto kNarrow = [](const at::Tensor& self, const auto&...) { return is_narrow(self.scalar_type()); };
// Rows of a vocabulary's length.
constexpr auto kLongRow = [](const at::Tensor& grad, const at::Tensor&, int64_t dim,
                             at::ScalarType input_dtype) {
  return grad.scalar_type() == input_dtype && is_long_row(grad, dim);
};
template <>
struct Hot<at::_ops::_log_softmax_backward_data>
    : OrCudas<at::_ops::_log_softmax_backward_data, kLongRow,
              ConvertingSoftmaxBackward<at::_ops::_log_softmax_backward_data>> {};
#define LOOM_OR_CUDAS(op, is_cudas) \
  template <>                       \
  struct Hot<at::_ops::op> : OrCudas<at::_ops::op, is_cudas> {};
LOOM_OR_CUDAS(div_Tensor, kQuotient)
LOOM_OR_CUDAS(div__Tensor, kQuotient)
LOOM_OR_CUDAS(add_Tensor, kScaledSum)
LOOM_OR_CUDAS(add__Tensor, kScaledSum)
LOOM_OR_CUDAS(sub_Tensor, kScaledSum)
LOOM_OR_CUDAS(addcdiv_, kRounded)
LOOM_OR_CUDAS(addcmul_, kRounded)
LOOM_OR_CUDAS(pow_Tensor_Scalar, kNarrowPower)
LOOM_OR_CUDAS(sigmoid_backward, kNarrow)
LOOM_OR_CUDAS(tanh_backward, kRounded)
LOOM_OR_CUDAS(sqrt, kRounded)
LOOM_OR_CUDAS(sum, kRounded)
LOOM_OR_CUDAS(mean, kRounded)
LOOM_OR_CUDAS(sum_dim_IntList, kRounded)
LOOM_OR_CUDAS(mean_dim, kRounded)
LOOM_OR_CUDAS(_foreach_add__List, kRoundedList)
LOOM_OR_CUDAS(_foreach_add__Scalar, kRoundedList)
LOOM_OR_CUDAS(_foreach_addcdiv__ScalarList, kRoundedList)
LOOM_OR_CUDAS(_foreach_addcmul__Scalar, kRoundedList)
LOOM_OR_CUDAS(_foreach_mul__Scalar, kRoundedList)
LOOM_OR_CUDAS(_foreach_mul__ScalarList, kRoundedList)
LOOM_OR_CUDAS(_foreach_sqrt, kRoundedList)
#undef LOOM_OR_CUDAS

}  // namespace

void register_unboxed() {
  // By a pointer, so that ops with the same signature share the code by which PyTorch calls them boxed.
#define LOOM_UNBOXED(op)                                                  \
  implement({at::_ops::op::name, at::_ops::op::overload_name}, own_key(), \
            c10::KernelFunction::makeFromUnboxedRuntimeFunction(&Hot<at::_ops::op>::call));
#include "torch/generated/unboxed_ops.inc"
#undef LOOM_UNBOXED
}

}  // namespace loom::glue
