#include "torch/inference/default_dtype.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>

#include "torch/loans/replace_tensors.h"

namespace loom::glue {

namespace {

bool is_number_of_python(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

struct Operands {
  bool has_whole = false, has_bool = false, has_others = false;  // others: of dtypes that are not promoted
  bool has_fractional_out = false;

  Operands(const std::vector<c10::Argument>& schema, torch::jit::Stack& stack) {
    for (size_t i = 0; i < schema.size(); ++i) {
      with_tensors_replaced(stack[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) add(tensor, schema[i].is_out());
        return tensor;
      });
    }
  }

 private:
  void add(const at::Tensor& tensor, bool is_out) {
    const c10::ScalarType dtype = tensor.scalar_type();
    const bool is_integral = c10::isIntegralType(dtype, /*includeBool=*/true);
    if (is_out) {
      has_fractional_out |= !is_integral;
    } else if (!is_number_of_python(tensor)) {
      has_bool |= dtype == c10::ScalarType::Bool;
      has_whole |= is_integral && dtype != c10::ScalarType::Bool;
      has_others |= !is_integral;
    }
  }
};

// Whether the op refuses an integral `out`, as those do that promote to the default dtype.
bool needs_fractional_out(const Op& op, const std::vector<c10::Argument>& schema,
                          const torch::jit::Stack& stack) {
  if (!op.shape_function()) return true;
  torch::jit::Stack call;
  for (size_t i = 0; i < schema.size(); ++i) {
    call.push_back(with_tensors_replaced(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      const c10::ScalarType dtype = schema[i].is_out() ? c10::ScalarType::Long : tensor.scalar_type();
      at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), dtype);
      if (is_number_of_python(tensor)) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
      return meta;
    }));
  }
  try {
    op.shape_function()(call);
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

bool is_promoted(const InferredOutputs& inferred, c10::ScalarType dtype) {
  return std::any_of(inferred.returns.begin(), inferred.returns.end(), [&](const auto& returned) {
    return std::any_of(returned.outputs.begin(), returned.outputs.end(), [&](const Output& output) {
      return output.kind == Output::Kind::kNew &&
             (output.layout.dtype == dtype || output.layout.dtype == c10::toComplexType(dtype));
    });
  });
}

}  // namespace

void keep_default_dtype(const Op& op, torch::jit::Stack& stack, const InferredOutputs& inferred,
                        c10::ScalarType issued) {
  // Others read whole numbers as what they are, such as packed values.
  const runtime::ShapeClass kind = op.record.shape_class;
  if (!op.is_foreach && kind != runtime::ShapeClass::kElementwise &&
      kind != runtime::ShapeClass::kReduction) {
    return;
  }
  const auto& schema = op.handle.schema().arguments();
  const Operands operands(schema, stack);
  if (operands.has_others || !(operands.has_whole || operands.has_bool)) return;
  if (operands.has_fractional_out) {
    TORCH_CHECK(
        !needs_fractional_out(op, schema, stack), op.name(), " was issued when the default dtype was ",
        issued, ", which is ", c10::get_default_dtype_as_scalartype(),
        " now: which of them it computes in decides what it writes to `out`. Set the default dtype as "
        "it was before the graph is replayed, or capture the op without `out`");
    return;
  }
  if (!is_promoted(inferred, issued)) return;
  for (c10::IValue& value : stack) {
    value = with_tensors_replaced(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || is_number_of_python(tensor)) return tensor;
      // A mask beside whole numbers says which of them are taken.
      const bool is_mask = operands.has_whole && tensor.scalar_type() == c10::ScalarType::Bool;
      return is_mask ? tensor : tensor.to(issued);
    });
  }
}

}  // namespace loom::glue
