// The ops that run without the boxed kernel's stack, chosen by how often programs call them.
#include "torch/dispatch/unboxed.h"
#include "torch/kernels/unboxed_ops.h"
#include "torch/ops/register_ops.h"

namespace loom::glue {

// clang-format off
#define LOOM_UNBOXED_OPS(_) \
  _(add_Tensor, true) _(add__Tensor, true) _(sub_Tensor, true) _(mul_Tensor, true) _(mul__Tensor, true) \
  _(div_Tensor, true) _(div__Tensor, true) _(neg, true) _(exp, true) _(sqrt, true) _(rsqrt, true) _(tanh, true) \
  _(sigmoid, true) _(relu, true) _(relu_, true) _(gelu, true) _(silu, true) _(pow_Tensor_Scalar, true) \
  _(threshold_backward, true) _(gelu_backward, true) _(tanh_backward, true) _(sigmoid_backward, true) \
  _(addcmul_, true) _(addcdiv_, true) _(where_self, true) _(eq_Tensor, true) _(ne_Scalar, true) _(eq_Scalar, true) \
  _(sum_dim_IntList, true) _(mean_dim, true) _(sum, true) _(mean, true) \
  _(mm, false) _(bmm, false) _(addmm, false) _(baddbmm, false) _(_softmax, false) _(_log_softmax, false) \
  _(_softmax_backward_data, false) _(_log_softmax_backward_data, false) _(native_layer_norm, false) \
  _(native_layer_norm_backward, false) _(native_batch_norm, false) _(native_batch_norm_backward, false) \
  _(cat, false) _(index_select, false) _(gather, false) _(embedding, false) _(embedding_dense_backward, false) \
  _(clone, true) _(argmax, false) _(nll_loss_forward, false) _(nll_loss_backward, false) \
  _(convolution, false) _(convolution_backward, false) \
  _(_foreach_add__List, true) _(_foreach_add__Scalar, true) _(_foreach_mul__Scalar, true) \
  _(_foreach_mul__ScalarList, true) _(_foreach_mul__List, true) _(_foreach_div__ScalarList, true) \
  _(_foreach_addcmul__Scalar, true) _(_foreach_addcdiv__ScalarList, true) _(_foreach_lerp__Scalar, true) \
  _(_foreach_sqrt, true) _(_foreach_zero_, true)
// clang-format on

void register_unboxed(torch::Library& library) {
#define LOOM_REGISTER(op, host_scalars)                                                           \
  {                                                                                               \
    using Op = at::_ops::op;                                                                      \
    std::string name = Op::name + 6;                                                              \
    if (Op::overload_name[0] != '\0') name += std::string(".") + Op::overload_name;               \
    library.impl(name.c_str(), torch::CppFunction(TORCH_FN((Borrowed<Op, host_scalars>::call)))); \
  }
  LOOM_UNBOXED_OPS(LOOM_REGISTER)
#undef LOOM_REGISTER
}

}  // namespace loom::glue
