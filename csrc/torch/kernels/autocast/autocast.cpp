// torch.autocast("loom"): PyTorch's own cast lists. One boxed kernel for all ops, since a template for each
// would take longer to compile than everything else that is registered.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "torch/core/own_casts.h"
#include "torch/core/registration.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using at::autocast::cached_cast;
using at::autocast::CastPolicy;

struct CastOp {
  const char *name, *overload;
  CastPolicy policy;
};

#define LOOM_CAST_1(policy, op) {"aten::" #op, "", CastPolicy::policy},
#define LOOM_CAST_2(policy, op, overload) {"aten::" #op, #overload, CastPolicy::policy},
#define LOOM_CAST_PICK(first, second, name, ...) name
#define LOOM_CAST(policy, ...) LOOM_CAST_PICK(__VA_ARGS__, LOOM_CAST_2, LOOM_CAST_1, )(policy, __VA_ARGS__)
#define LOOM_LOWER(...) LOOM_CAST(lower_precision_fp, __VA_ARGS__)
#define LOOM_FP32(...) LOOM_CAST(fp32, __VA_ARGS__)
#define LOOM_FP32_OPT(...) LOOM_CAST(fp32_set_opt_dtype, __VA_ARGS__)
#define LOOM_PROMOTE(...) LOOM_CAST(promote, __VA_ARGS__)

constexpr CastOp kCastOps[] = {
    // clang-format off
    AT_FORALL_LOWER_PRECISION_FP(LOOM_LOWER)
    AT_FORALL_FP32(LOOM_FP32)
    AT_FORALL_FP32_SET_OPT_DTYPE(LOOM_FP32_OPT)
    AT_FORALL_PROMOTE(LOOM_PROMOTE)
    // clang-format on
    // The layers, which CUDA has kernels for, and which are none of the ops below.
    {"aten::lstm", "input", CastPolicy::lower_precision_fp},
    {"aten::lstm", "data", CastPolicy::lower_precision_fp},
    {"aten::gru", "input", CastPolicy::lower_precision_fp},
    {"aten::gru", "data", CastPolicy::lower_precision_fp},
    {"aten::rnn_tanh", "input", CastPolicy::lower_precision_fp},
    {"aten::rnn_tanh", "data", CastPolicy::lower_precision_fp},
    {"aten::rnn_relu", "input", CastPolicy::lower_precision_fp},
    {"aten::rnn_relu", "data", CastPolicy::lower_precision_fp},
    // Run as the overloads that take a dtype, which stands behind the other arguments.
    {"aten::norm", "Scalar", CastPolicy::fp32_append_dtype},
    {"aten::norm", "ScalarOpt_dim", CastPolicy::fp32_append_dtype},
};

bool is_eligible(const c10::IValue& value) {
  return value.isTensor() && at::autocast::is_autocast_eligible(value.toTensor(), device_type());
}

// Runs an op with its arguments cast, and autocast off.
class CastKernel final : public c10::OperatorKernel {
 public:
  CastKernel(const c10::OperatorHandle& op, CastPolicy policy)
      : policy_(policy),
        num_arguments_(op.schema().arguments().size()),
        target_(policy == CastPolicy::fp32_append_dtype ? with_dtype(op) : op) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Type& type = *arguments[i].real_type();
      const bool holds_tensors =
          type.isSubtypeOf(*c10::OptionalType::ofTensor()) || type.isSubtypeOf(*c10::ListType::ofTensors());
      if (holds_tensors) tensors_.push_back(i);
      if (arguments[i].name() == "dtype") dtype_ = i;
    }
  }

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(autocast_key());
    c10::IValue* arguments = stack->data() + stack->size() - num_arguments_;
    switch (policy_) {
      case CastPolicy::lower_precision_fp:
        cast(arguments, at::autocast::get_lower_precision_fp_from_device_type(device_type()));
        break;
      case CastPolicy::fp32:
        cast(arguments, at::kFloat);
        break;
      case CastPolicy::fp32_set_opt_dtype:
        // Where the op is not for autocast, a dtype could interfere with promotion of its own.
        if (is_eligible(arguments[0]) && arguments[dtype_].isNone()) arguments[dtype_] = at::kFloat;
        break;
      case CastPolicy::fp32_append_dtype:
        stack->emplace_back(is_eligible(arguments[0]) ? at::kFloat : arguments[0].toTensor().scalar_type());
        break;
      case CastPolicy::promote:
        cast(arguments, widest(arguments));
        break;
    }
    target_.callBoxed(stack);
  }

 private:
  static c10::OperatorHandle with_dtype(const c10::OperatorHandle& op) {
    const bool has_dim = op.operator_name().overload_name == "ScalarOpt_dim";
    return c10::Dispatcher::singleton().findSchemaOrThrow(
        "aten::norm", has_dim ? "ScalarOpt_dim_dtype" : "ScalarOpt_dtype");
  }

  void cast(c10::IValue* arguments, at::ScalarType dtype) const {
    for (const size_t i : tensors_) {
      c10::IValue& value = arguments[i];
      if (value.isTensor()) {
        value = cached_cast(dtype, value.toTensor(), device_type());
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        list.reserve(value.toListRef().size());
        for (const c10::IValue& element : value.toListRef()) {
          list.push_back(cached_cast(dtype, element.toTensor(), device_type()));
        }
        value = std::move(list);
      }
    }
  }

  at::ScalarType widest(const c10::IValue* arguments) const {
    at::ScalarType dtype = at::autocast::get_lower_precision_fp_from_device_type(device_type());
    for (const size_t i : tensors_) {
      const c10::IValue& value = arguments[i];
      if (value.isTensor()) {
        dtype = at::autocast::prioritize(dtype, value.toTensor(), device_type());
      } else if (value.isTensorList()) {
        for (const c10::IValue& element : value.toListRef()) {
          dtype = at::autocast::prioritize(dtype, element.toTensor(), device_type());
        }
      }
    }
    return dtype;
  }

  const CastPolicy policy_;
  const size_t num_arguments_;
  const c10::OperatorHandle target_;
  std::vector<size_t> tensors_;  // the arguments that are tensors, or lists of them
  size_t dtype_ = 0;
};

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: half precision "
      "cannot hold probabilities near 0 and 1. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss.");
}

void register_casts() {
  // Without it every op outside the lists fails while autocast is on.
  fall_back(autocast_key(), c10::KernelFunction::makeFallthrough());
  const auto find = [](const char* name, const char* overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  };
  if (!find("aten::binary_cross_entropy", "").hasKernelForDispatchKey(autocast_key())) {
    library(autocast_key()).impl("binary_cross_entropy", refuse_binary_cross_entropy);
  }
  for (const CastOp& cast : kCastOps) {
    const c10::OperatorHandle op = find(cast.name, cast.overload);
    if (op.hasKernelForDispatchKey(autocast_key())) continue;  // the program's own
    implement(op.operator_name(), autocast_key(),
              c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<CastKernel>(op, cast.policy)));
  }
}

}  // namespace

void register_autocast() {
  // torch.autocast runs what waits, too: fake tensors are cast before a device is used.
  if (has_own_casts()) at_first_use(register_casts);
}

}  // namespace loom::glue
