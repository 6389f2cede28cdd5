// The ops that run without the boxed kernel's stack: `unboxed` in the op table.
#include "torch/core/registration.h"
#include "torch/cuda/values/arithmetic.h"
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
    return Borrowed<At>::call(grad, output, dim, own).to(input_dtype);
  }
};
template <>
struct Hot<at::_ops::_softmax> : ConvertingSoftmax<at::_ops::_softmax> {};
template <>
struct Hot<at::_ops::_log_softmax> : ConvertingSoftmax<at::_ops::_log_softmax> {};
template <>
struct Hot<at::_ops::_softmax_backward_data> : ConvertingSoftmaxBackward<at::_ops::_softmax_backward_data> {};
template <>
struct Hot<at::_ops::_log_softmax_backward_data>
    : ConvertingSoftmaxBackward<at::_ops::_log_softmax_backward_data> {};

// Where the boxed kernel has more than the engine's: values of CUDA's own (torch/cuda/values/values.h).
template <typename At, typename... Arguments>
torch::jit::Stack run_as_boxed(const Arguments&... arguments) {
  static const Op& op = Op::named(At::name, At::overload_name);
  torch::jit::Stack stack{arguments...};
  run_boxed(op.handle, &stack);
  return stack;
}
template <typename At, typename... Arguments>
at::Tensor call_boxed(const Arguments&... arguments) {
  return std::move(run_as_boxed<At>(arguments...).back()).toTensor();
}

// CUDA divides by a number of the host as the table of its values says: the boxed kernel has that.
bool is_cudas_quotient(const at::Tensor& self, const at::Tensor& other) {
  return device_type() == c10::DeviceType::CUDA && other.unsafeGetTensorImpl()->is_wrapped_number() &&
         !self.is_complex();
}
template <>
struct Hot<at::_ops::div_Tensor> {
  static at::Tensor call(const at::Tensor& self, const at::Tensor& other) {
    if (!is_cudas_quotient(self, other)) return Borrowed<at::_ops::div_Tensor>::call(self, other);
    return call_boxed<at::_ops::div_Tensor>(self, other);
  }
};
template <>
struct Hot<at::_ops::div__Tensor> {
  static at::Tensor& call(at::Tensor& self, const at::Tensor& other) {
    if (!is_cudas_quotient(self, other)) return Borrowed<at::_ops::div__Tensor>::call(self, other);
    call_boxed<at::_ops::div__Tensor>(self, other);
    return self;
  }
};

// It fuses products into sums, keeps numbers beside half precision in float32, and rounds roots once.
template <typename At>
struct ScaledSum {
  static at::Tensor call(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    return is_scaled_as_cuda(self, other, alpha) ? call_boxed<At>(self, other, alpha)
                                                 : Borrowed<At>::call(self, other, alpha);
  }
};
template <>
struct Hot<at::_ops::add_Tensor> : ScaledSum<at::_ops::add_Tensor> {};
template <>
struct Hot<at::_ops::sub_Tensor> : ScaledSum<at::_ops::sub_Tensor> {};
template <>
struct Hot<at::_ops::add__Tensor> {
  using At = at::_ops::add__Tensor;
  static at::Tensor& call(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    if (!is_scaled_as_cuda(self, other, alpha)) return Borrowed<At>::call(self, other, alpha);
    run_as_boxed<At>(self, other, alpha);
    return self;
  }
};
template <typename At>
struct AddedTerm {
  static at::Tensor& call(at::Tensor& self, const at::Tensor& first, const at::Tensor& second,
                          const at::Scalar& value) {
    if (!is_rounded_as_cuda(self)) return Borrowed<At>::call(self, first, second, value);
    run_as_boxed<At>(self, first, second, value);
    return self;
  }
};
template <>
struct Hot<at::_ops::addcdiv_> : AddedTerm<at::_ops::addcdiv_> {};
template <>
struct Hot<at::_ops::addcmul_> : AddedTerm<at::_ops::addcmul_> {};
template <>
struct Hot<at::_ops::sqrt> {
  using At = at::_ops::sqrt;
  static at::Tensor call(const at::Tensor& self) {
    return is_rounded_as_cuda(self) ? call_boxed<At>(self) : Borrowed<At>::call(self);
  }
};
template <typename At, typename Signature = typename At::schema>
struct OfLists;
template <typename At, typename Return, typename... Arguments>
struct OfLists<At, Return(at::TensorList, Arguments...)> {
  static Return call(at::TensorList self, Arguments... arguments) {
    if (self.empty() || !is_rounded_as_cuda(self[0])) return Borrowed<At>::call(self, arguments...);
    torch::jit::Stack stack = run_as_boxed<At>(boxed_argument(self), boxed_argument(arguments)...);
    if constexpr (!std::is_void_v<Return>) return std::move(stack.back()).toTensorVector();
  }
};
template <>
struct Hot<at::_ops::_foreach_add__List> : OfLists<at::_ops::_foreach_add__List> {};
template <>
struct Hot<at::_ops::_foreach_add__Scalar> : OfLists<at::_ops::_foreach_add__Scalar> {};
template <>
struct Hot<at::_ops::_foreach_addcdiv__ScalarList> : OfLists<at::_ops::_foreach_addcdiv__ScalarList> {};
template <>
struct Hot<at::_ops::_foreach_addcmul__Scalar> : OfLists<at::_ops::_foreach_addcmul__Scalar> {};
template <>
struct Hot<at::_ops::_foreach_mul__Scalar> : OfLists<at::_ops::_foreach_mul__Scalar> {};
template <>
struct Hot<at::_ops::_foreach_mul__ScalarList> : OfLists<at::_ops::_foreach_mul__ScalarList> {};
template <>
struct Hot<at::_ops::_foreach_sqrt> : OfLists<at::_ops::_foreach_sqrt> {};

// It adds in an order of its own.
bool is_cudas_sum(const at::Tensor& self) {
  return device_type() == c10::DeviceType::CUDA && self.is_floating_point();
}
template <typename At, typename... Rest>
at::Tensor sum_as_cuda(const at::Tensor& self, Rest... rest) {
  return is_cudas_sum(self) ? call_boxed<At>(self, rest...) : Borrowed<At>::call(self, rest...);
}
template <typename At>
struct Sum {
  static at::Tensor call(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
    return sum_as_cuda<At>(self, dtype);
  }
};
template <typename At>
struct SumOfDims {
  static at::Tensor call(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                         std::optional<at::ScalarType> dtype) {
    return sum_as_cuda<At>(self, dim, keepdim, dtype);
  }
};
template <>
struct Hot<at::_ops::sum> : Sum<at::_ops::sum> {};
template <>
struct Hot<at::_ops::mean> : Sum<at::_ops::mean> {};
template <>
struct Hot<at::_ops::sum_dim_IntList> : SumOfDims<at::_ops::sum_dim_IntList> {};
template <>
struct Hot<at::_ops::mean_dim> : SumOfDims<at::_ops::mean_dim> {};

template <typename At>
void register_unboxed_op(torch::Library& library) {
  std::string name = At::name + 6;  // without "aten::"
  if (At::overload_name[0] != '\0') name += std::string(".") + At::overload_name;
  library.impl(name.c_str(), torch::CppFunction(TORCH_FN((Hot<At>::call))));
}

}  // namespace

void register_unboxed() {
  torch::Library& own = library(own_key());
#define LOOM_UNBOXED(op) register_unboxed_op<at::_ops::op>(own);
#include "torch/generated/unboxed_ops.inc"
#undef LOOM_UNBOXED
}

}  // namespace loom::glue
