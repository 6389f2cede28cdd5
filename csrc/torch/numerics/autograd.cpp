// Autograd formulas. Nodes of their own, as PyTorch's ops have, and not torch::autograd::Function, which
// functorch refuses.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh_backward.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <vector>

#include "numerics/tensix/functions.h"
#include "torch/core/registration.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::set_history;
using torch::autograd::variable_list;

template <typename Signature>
auto op_named(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("loom_numerics::") + name).c_str(), overload)
      .typed<Signature>();
}

template <typename N>
c10::intrusive_ptr<N> make_node() {
  return c10::make_intrusive<N>();
}

void refuse_forward_mode(const at::Tensor& tensor, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(tensor), op,
                              " has no forward-mode derivative; use reverse mode");
}

at::Tensor in_format(const at::Tensor& grad, int64_t grad_format) {
  return grad_format == kNone ? grad : quantize(grad, grad_format);
}

// ---- quantize

struct QuantizeBackward : Node {
  int64_t grad_format = kNone;
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    return {in_format(grads[0], grad_format)};
  }
  std::string name() const override { return "LoomQuantizeBackward"; }
};

c10::intrusive_ptr<QuantizeBackward> straight_through(const at::Tensor& self, int64_t grad_format) {
  if (!compute_requires_grad(self)) return nullptr;
  auto node = make_node<QuantizeBackward>();
  node->set_next_edges(collect_next_edges(self));
  node->grad_format = grad_format;
  return node;
}

using Quantize = at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, c10::string_view);

at::Tensor quantize_autograd(const at::Tensor& self, int64_t format, int64_t first, int64_t grad_format,
                             c10::string_view op) {
  static const auto handle = op_named<Quantize>("quantize");
  refuse_forward_mode(self, "quantize");
  const auto node = straight_through(self, grad_format);
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, format, first, grad_format, op);
  }();
  give_warning();
  if (node != nullptr) set_history(result, node);
  return result;
}

void quantize_inplace_autograd(at::Tensor& self, int64_t format, int64_t first, int64_t grad_format,
                               c10::string_view op) {
  static const auto handle =
      op_named<void(at::Tensor&, int64_t, int64_t, int64_t, c10::string_view)>("quantize_");
  refuse_forward_mode(self, "quantize_");
  torch::autograd::check_inplace(self, compute_requires_grad(self));
  const auto node = straight_through(self, grad_format);
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    handle.call(self, format, first, grad_format, op);
  }
  torch::autograd::increment_version(self);
  give_warning();
  if (node != nullptr) torch::autograd::rebase_history(self, node);
}

// Writing into `out` records nothing, so neither operand may want a gradient.
void check_out(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors, const char* op) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(
        !compute_requires_grad(tensor), op,
        "(): functions with out=... arguments don't support automatic differentiation, but one of the "
        "arguments requires grad.");
  }
}

void quantize_out_autograd(const at::Tensor& self, int64_t format, int64_t first, at::Tensor& out) {
  static const auto handle =
      op_named<void(const at::Tensor&, int64_t, int64_t, at::Tensor&)>("quantize", "out");
  check_out({self, out}, "quantize");
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    handle.call(self, format, first, out);
  }
  torch::autograd::increment_version(out);
}

std::tuple<at::Tensor, at::Tensor> quantize_counted_autograd(const at::Tensor& self, int64_t format,
                                                             int64_t grad_format, c10::string_view op) {
  static const auto handle =
      op_named<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, int64_t, c10::string_view)>(
          "quantize_counted");
  refuse_forward_mode(self, "quantize");
  const auto node = straight_through(self, grad_format);
  auto result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, format, grad_format, op);
  }();
  give_warning();
  if (node != nullptr) set_history(std::get<0>(result), node);
  return result;
}

// A cache of values that have no history: no version is counted, since a reader of the old `kept` would read
// the same of `self`.
void renew_autograd(at::Tensor& kept, at::Tensor& mark, const at::Tensor& self, int64_t format) {
  static const auto handle = op_named<void(at::Tensor&, at::Tensor&, const at::Tensor&, int64_t)>("renew_");
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    handle.call(kept, mark, self, format);
  }
  give_warning();
}

struct OperandBackward : Node {
  variable_list apply(variable_list&& grads) override { return {grads[0]}; }
  std::string name() const override { return "LoomOperandBackward"; }
};

at::Tensor operand_autograd(const at::Tensor& self, int64_t position, int64_t fidelity, bool low) {
  static const auto handle = op_named<at::Tensor(const at::Tensor&, int64_t, int64_t, bool)>("operand");
  refuse_forward_mode(self, "operand");
  c10::intrusive_ptr<OperandBackward> node;
  // The low part is a correction; the gradient goes through the whole operand's part alone.
  if (!low && compute_requires_grad(self)) {
    node = make_node<OperandBackward>();
    node->set_next_edges(collect_next_edges(self));
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, position, fidelity, low);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

// ---- matmul and linear

struct ProductBackward : Node {
  SavedVariable left, right;
  int64_t fidelity = 0, accumulate = 0, grad_format = kNone;
  int64_t mode = 0;

  void release_variables() override {
    left.reset_data();
    right.reset_data();
  }
};

// a · b of matrices; leading dimensions of `a` that the other side does not have are rows, so that one
// product sums over them.
struct MatmulBackward : ProductBackward {
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const {
    return matmul(a, b, fidelity, accumulate, mode);
  }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const at::Tensor a = left.unpack(), b = right.unpack();
    const at::Tensor matrix_a = a.dim() == 1 ? a.unsqueeze(0) : a;
    const at::Tensor matrix_b = b.dim() == 1 ? b.unsqueeze(1) : b;
    at::Tensor grad = in_format(grads[0], grad_format);
    if (b.dim() == 1) grad = grad.unsqueeze(-1);
    if (a.dim() == 1) grad = grad.unsqueeze(-2);
    variable_list result(2);
    if (task_should_compute_output(0)) {
      const at::Tensor summed = product(grad, matrix_b.mT());
      result[0] = at::sum_to(summed, matrix_a.sym_sizes()).reshape_symint(a.sym_sizes());
    }
    if (task_should_compute_output(1)) {
      at::Tensor summed;
      if (b.dim() <= 2 && matrix_a.dim() > 2) {
        summed = product(matrix_a.flatten(0, -2).mT(), grad.flatten(0, -2));
      } else {
        summed = product(matrix_a.mT(), grad);
      }
      result[1] = at::sum_to(summed, matrix_b.sym_sizes()).reshape_symint(b.sym_sizes());
    }
    return result;
  }
  std::string name() const override { return "LoomMatmulBackward"; }
};

using Matmul = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t, int64_t, int64_t);

at::Tensor matmul_autograd(const at::Tensor& self, const at::Tensor& other, int64_t fidelity,
                           int64_t accumulate, int64_t mode, int64_t out_format, int64_t grad_format) {
  static const auto handle = op_named<Matmul>("matmul");
  refuse_forward_mode(self, "matmul");
  refuse_forward_mode(other, "matmul");
  c10::intrusive_ptr<MatmulBackward> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<MatmulBackward>();
    node->set_next_edges(collect_next_edges(self, other));
    node->left = SavedVariable(self, false);
    node->right = SavedVariable(other, false);
    node->fidelity = fidelity;
    node->accumulate = accumulate;
    node->mode = mode;
    node->grad_format = grad_format;
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, other, fidelity, accumulate, mode, out_format, grad_format);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

void matmul_out_autograd(const at::Tensor& self, const at::Tensor& other, int64_t fidelity,
                         int64_t accumulate, int64_t mode, int64_t out_format, at::Tensor& out) {
  static const auto handle =
      op_named<void(const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t, int64_t, at::Tensor&)>(
          "matmul", "out");
  check_out({self, other, out}, "matmul");
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    handle.call(self, other, fidelity, accumulate, mode, out_format, out);
  }
  torch::autograd::increment_version(out);
}

struct LinearBackward : ProductBackward {
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return variable_list(3);
    const at::Tensor x = left.unpack(), weight = right.unpack();
    const at::Tensor grad = in_format(grads[0], grad_format);
    const at::Tensor rows = grad.dim() == 1 ? grad.unsqueeze(0) : grad.flatten(0, -2);
    variable_list result(3);
    if (task_should_compute_output(0)) result[0] = matmul(grad, weight, fidelity, accumulate, false);
    if (task_should_compute_output(1)) {
      const at::Tensor inputs = x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
      // The weight's gradient is that of its transpose, inputs^T · grad, transposed.
      result[1] = matmul(inputs.mT(), rows, fidelity, accumulate, false).mT();
    }
    if (task_should_compute_output(2)) result[2] = rows.sum(0);
    return result;
  }
  std::string name() const override { return "LoomLinearBackward"; }
};

using Linear = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t,
                          int64_t, int64_t, int64_t);

at::Tensor linear_autograd(const at::Tensor& self, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias, int64_t fidelity, int64_t accumulate,
                           int64_t out_format, int64_t grad_format) {
  static const auto handle = op_named<Linear>("linear");
  const at::Tensor added = bias.value_or(at::Tensor());
  refuse_forward_mode(self, "linear");
  refuse_forward_mode(weight, "linear");
  c10::intrusive_ptr<LinearBackward> node;
  if (compute_requires_grad(self, weight, added)) {
    node = make_node<LinearBackward>();
    node->set_next_edges(collect_next_edges(self, weight, added));
    node->left = SavedVariable(self, false);
    node->right = SavedVariable(weight, false);
    node->fidelity = fidelity;
    node->accumulate = accumulate;
    node->grad_format = grad_format;
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, weight, bias, fidelity, accumulate, out_format, grad_format);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

// ---- elements

using Elementwise = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t, int64_t);

struct ElementwiseBackward : Node {
  SavedVariable left, right;  // of products
  std::vector<c10::SymInt> left_sizes, right_sizes;
  int64_t operation = 0, fidelity = 0, accumulate = 0, mode = 0;

  void release_variables() override {
    left.reset_data();
    right.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    static const auto handle = op_named<Elementwise>("elementwise");
    if (!grads[0].defined()) return variable_list(2);
    variable_list result(2);
    const bool is_product = operation == 0;
    if (task_should_compute_output(0)) {
      const at::Tensor grad =
          is_product ? handle.call(grads[0], right.unpack(), 0, fidelity, accumulate, mode) : grads[0];
      result[0] = at::sum_to(grad, left_sizes);
    }
    if (task_should_compute_output(1)) {
      const at::Tensor grad = is_product ? handle.call(left.unpack(), grads[0], 0, fidelity, accumulate, mode)
                              : operation == 1 ? grads[0]
                                               : -grads[0];
      result[1] = at::sum_to(grad, right_sizes);
    }
    return result;
  }
  std::string name() const override { return "LoomElementwiseBackward"; }
};

at::Tensor elementwise_autograd(const at::Tensor& self, const at::Tensor& other, int64_t operation,
                                int64_t fidelity, int64_t accumulate, int64_t mode) {
  static const auto handle = op_named<Elementwise>("elementwise");
  refuse_forward_mode(self, "elementwise");
  refuse_forward_mode(other, "elementwise");
  c10::intrusive_ptr<ElementwiseBackward> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<ElementwiseBackward>();
    node->set_next_edges(collect_next_edges(self, other));
    if (operation == 0) {
      node->left = SavedVariable(self, false);
      node->right = SavedVariable(other, false);
    }
    node->left_sizes = self.sym_sizes().vec();
    node->right_sizes = other.sym_sizes().vec();
    node->operation = operation;
    node->fidelity = fidelity;
    node->accumulate = accumulate;
    node->mode = mode;
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, other, operation, fidelity, accumulate, mode);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

using Function = at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t);

// The derivative is that of the function itself, at the chip's value of it.
struct FunctionBackward : Node {
  SavedVariable input;
  int64_t function = 0, accumulate = 0, mode = 0;

  void release_variables() override { input.reset_data(); }

  variable_list apply(variable_list&& grads) override {
    static const auto handle = op_named<Function>("function");
    if (!grads[0].defined()) return variable_list(1);
    const at::Tensor &grad = grads[0], x = input.unpack();
    const auto value = [&] { return handle.call(x, function, accumulate, mode); };
    switch (static_cast<tensix::Function>(function)) {
      case tensix::Function::kReciprocal:
        return {-grad * value().square()};
      case tensix::Function::kSqrt:
        return {grad / (2 * value())};
      case tensix::Function::kRsqrt:
        return {-0.5 * grad * value().pow(3)};
      case tensix::Function::kExp:
        return {grad * value()};
      case tensix::Function::kGelu:
        return {at::gelu_backward(grad, x)};
      case tensix::Function::kTanh:
        return {at::tanh_backward(grad, value())};
      case tensix::Function::kSigmoid:
        return {at::sigmoid_backward(grad, value())};
    }
    return variable_list(1);
  }
  std::string name() const override { return "LoomFunctionBackward"; }
};

at::Tensor function_autograd(const at::Tensor& self, int64_t function, int64_t accumulate, int64_t mode) {
  static const auto handle = op_named<Function>("function");
  refuse_forward_mode(self, "function");
  c10::intrusive_ptr<FunctionBackward> node;
  if (compute_requires_grad(self)) {
    node = make_node<FunctionBackward>();
    node->set_next_edges(collect_next_edges(self));
    node->input = SavedVariable(self, false);
    node->function = function;
    node->accumulate = accumulate;
    node->mode = mode;
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, function, accumulate, mode);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

// ---- convolution

using Ints = c10::SymIntArrayRef;
using Convolution = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, Ints,
                               Ints, Ints, bool, Ints, c10::SymInt, int64_t, int64_t, int64_t, int64_t);
using ConvolutionBackwardOp = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                                 const at::Tensor&, Ints, Ints, Ints, bool,
                                                                 Ints, c10::SymInt, int64_t, int64_t,
                                                                 std::array<bool, 2>);

struct ConvolutionBackward : ProductBackward {
  std::vector<c10::SymInt> stride, padding, dilation, output_padding;
  bool transposed = false;
  c10::SymInt groups = 1;

  variable_list apply(variable_list&& grads) override {
    static const auto handle = op_named<ConvolutionBackwardOp>("convolution_backward");
    if (!grads[0].defined()) return variable_list(3);
    const at::Tensor x = left.unpack(), weight = right.unpack();
    const at::Tensor grad = in_format(grads[0], grad_format);
    const std::array<bool, 2> wanted = {task_should_compute_output(0), task_should_compute_output(1)};
    variable_list result(3);
    if (wanted[0] || wanted[1]) {
      auto [grad_input, grad_weight] = handle.call(grad, x, weight, stride, padding, dilation, transposed,
                                                   output_padding, groups, fidelity, accumulate, wanted);
      if (wanted[0]) result[0] = grad_input;
      if (wanted[1]) result[1] = grad_weight;
    }
    if (task_should_compute_output(2)) {
      // Over all dimensions but the channels, which stand before the windows'.
      std::vector<int64_t> others;
      const int64_t channels = grad.dim() - 1 - static_cast<int64_t>(stride.size());
      for (int64_t i = 0; i < grad.dim(); ++i) {
        if (i != channels) others.push_back(i);
      }
      result[2] = at::sum(grad, others);
    }
    return result;
  }
  std::string name() const override { return "LoomConvolutionBackward"; }
};

at::Tensor convolution_autograd(const at::Tensor& self, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias, Ints stride, Ints padding,
                                Ints dilation, bool transposed, Ints output_padding, c10::SymInt groups,
                                int64_t fidelity, int64_t accumulate, int64_t out_format,
                                int64_t grad_format) {
  static const auto handle = op_named<Convolution>("convolution");
  const at::Tensor added = bias.value_or(at::Tensor());
  refuse_forward_mode(self, "convolution");
  refuse_forward_mode(weight, "convolution");
  c10::intrusive_ptr<ConvolutionBackward> node;
  if (compute_requires_grad(self, weight, added)) {
    node = make_node<ConvolutionBackward>();
    node->set_next_edges(collect_next_edges(self, weight, added));
    node->left = SavedVariable(self, false);
    node->right = SavedVariable(weight, false);
    node->stride = stride.vec();
    node->padding = padding.vec();
    node->dilation = dilation.vec();
    node->output_padding = output_padding.vec();
    node->transposed = transposed;
    node->groups = groups;
    node->fidelity = fidelity;
    node->accumulate = accumulate;
    node->grad_format = grad_format;
  }
  at::Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(self, weight, bias, stride, padding, dilation, transposed, output_padding, groups,
                       fidelity, accumulate, out_format, grad_format);
  }();
  if (node != nullptr) set_history(result, node);
  return result;
}

}  // namespace

void register_formulas() {
  torch::Library& autograd = loom::glue::library(c10::DispatchKey::Autograd, kLibrary);
  autograd.impl("quantize", &quantize_autograd);
  autograd.impl("quantize_", &quantize_inplace_autograd);
  autograd.impl("quantize.out", &quantize_out_autograd);
  autograd.impl("quantize_counted", &quantize_counted_autograd);
  autograd.impl("renew_", &renew_autograd);
  autograd.impl("operand", &operand_autograd);
  autograd.impl("matmul", &matmul_autograd);
  autograd.impl("matmul.out", &matmul_out_autograd);
  autograd.impl("linear", &linear_autograd);
  autograd.impl("convolution", &convolution_autograd);
  autograd.impl("elementwise", &elementwise_autograd);
  autograd.impl("function", &function_autograd);
}

}  // namespace loom::numerics::glue
