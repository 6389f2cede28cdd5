// Whole steps of optimizers (`fused=True`): one command where the chip has such kernels, else their parts.
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <vector>

#include "torch/core/device.h"
#include "torch/core/optional_tensor.h"
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using at::TensorList;

// A learning rate without dimensions: it scales tensors of every dtype and stays out of theirs.
Tensor number(double value) { return at::scalar_tensor(value, c10::TensorOptions().dtype(c10::kDouble)); }
const Tensor& number(const Tensor& value) { return value; }

// What gradient scaling asks of a step: gradients are divided by the scale, which they keep, and nothing else
// changes if one of them was infinite. No value comes to the host.
class ScaledStep {
 public:
  ScaledStep(TensorList gradients, OptionalTensor scale, OptionalTensor found_inf) {
    if (is_given(scale)) {
      for (const Tensor& gradient : gradients) gradient.div_(*scale);
    }
    if (is_given(found_inf)) is_skipped_ = found_inf->eq(1);
  }
  // To be called before the tensors change.
  void keep(TensorList tensors) {
    if (!is_skipped_.defined()) return;
    for (const Tensor& tensor : tensors) kept_.push_back({tensor, tensor.clone()});
  }
  void finish() {
    for (const auto& [tensor, before] : kept_) tensor.copy_(at::where(is_skipped_, before, tensor));
  }

 private:
  struct Kept {
    Tensor tensor, before;
  };
  Tensor is_skipped_;
  std::vector<Kept> kept_;
};

// The gradient that an update follows: of the loss or of its negative, with decay added to it.
Tensor direction(const Tensor& gradient, const Tensor& parameter, bool maximize, double weight_decay) {
  const Tensor way = maximize ? gradient.neg() : gradient;
  return weight_decay == 0 ? way : way.add(parameter, weight_decay);
}

template <bool kDecoupled, typename Rate>
void adam(TensorList parameters, TensorList gradients, TensorList averages, TensorList squares,
          TensorList largest_squares, TensorList steps, Rate learning_rate, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize, OptionalTensor scale,
          OptionalTensor found_inf) {
  const Tensor rate = number(learning_rate);
  ScaledStep step(gradients, scale, found_inf);
  for (TensorList changed : {parameters, averages, squares, largest_squares}) step.keep(changed);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    if (kDecoupled && weight_decay != 0) parameter.mul_(rate.mul(-weight_decay).add_(1));
    const Tensor way = direction(gradients[i], parameter, maximize, kDecoupled ? 0 : weight_decay);
    averages[i].lerp_(way, 1 - beta1);
    squares[i].mul_(beta2).addcmul_(way, way, 1 - beta2);
    if (amsgrad) largest_squares[i].copy_(at::maximum(largest_squares[i], squares[i]));
    const Tensor correction = at::pow(beta1, steps[i]).neg_().add_(1);
    const Tensor root = at::pow(beta2, steps[i]).neg_().add_(1).sqrt_();
    const Tensor spread = (amsgrad ? largest_squares : squares)[i].sqrt().div_(root).add_(eps);
    parameter.sub_(averages[i].div(spread).mul_(rate.div(correction)));
  }
  step.finish();
}

template <typename Rate>
void sgd(TensorList parameters, TensorList gradients, TensorList momenta, double weight_decay,
         double momentum, Rate learning_rate, double dampening, bool nesterov, bool maximize,
         bool is_first_step, OptionalTensor scale, OptionalTensor found_inf) {
  const Tensor rate = number(learning_rate);
  ScaledStep step(gradients, scale, found_inf);
  for (TensorList changed : {parameters, momenta}) step.keep(changed);
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor way = direction(gradients[i], parameters[i], maximize, weight_decay);
    if (momentum != 0) {
      const Tensor& velocity = momenta[i];
      if (is_first_step) {
        velocity.copy_(way);
      } else {
        velocity.mul_(momentum).add_(way, 1 - dampening);
      }
      way = nesterov ? way.add(velocity, momentum) : velocity;
    }
    parameters[i].sub_(way.mul(rate));
  }
  step.finish();
}

template <typename Rate>
void adagrad(TensorList parameters, TensorList gradients, TensorList sums, TensorList steps,
             Rate learning_rate, double rate_decay, double weight_decay, double eps, bool maximize,
             OptionalTensor scale, OptionalTensor found_inf) {
  const Tensor rate = number(learning_rate);
  ScaledStep step(gradients, scale, found_inf);
  for (TensorList changed : {parameters, sums}) step.keep(changed);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor way = direction(gradients[i], parameters[i], maximize, weight_decay);
    sums[i].addcmul_(way, way);
    const Tensor decayed = rate.div(steps[i].sub(1).mul_(rate_decay).add_(1));
    parameters[i].sub_(way.div(sums[i].sqrt().add_(eps)).mul_(decayed));
  }
  step.finish();
}

struct Step {
  const char* name;
  c10::KernelFunction parts;
};

template <typename F>
c10::KernelFunction parts(F* function) {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(function);
}

const std::vector<Step>& all_steps() {
  static const auto* const steps = new std::vector<Step>{
      {"_fused_adam_", parts(&adam<false, double>)},
      {"_fused_adam_.tensor_lr", parts(&adam<false, const Tensor&>)},
      {"_fused_adamw_", parts(&adam<true, double>)},
      {"_fused_adamw_.tensor_lr", parts(&adam<true, const Tensor&>)},
      {"_fused_sgd_", parts(&sgd<double>)},
      {"_fused_sgd_.tensor_lr", parts(&sgd<const Tensor&>)},
      {"_fused_adagrad_", parts(&adagrad<double>)},
      {"_fused_adagrad_.tensor_lr", parts(&adagrad<const Tensor&>)},
  };
  return *steps;
}

// The engine's fused SGD leaves most elements of 16 bits as they were: docs/upstream.md, "Optimizers". CUDA's
// (torch/cuda/values) does not.
bool is_lost_by_engine(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.operator_name().name != "aten::_fused_sgd_") return false;
  const size_t first = stack.size() - op.schema().arguments().size();
  const auto parameters = stack[first].toTensorVector(), gradients = stack[first + 1].toTensorVector();
  if (parameters.empty() || !c10::isReducedFloatingType(parameters[0].scalar_type())) return false;
  if (device_type() != c10::DeviceType::CUDA) return true;
  // It takes lists of one dtype.
  const auto is_other = [&](const Tensor& tensor) {
    return tensor.scalar_type() != parameters[0].scalar_type();
  };
  return std::any_of(parameters.begin(), parameters.end(), is_other) ||
         std::any_of(gradients.begin(), gradients.end(), is_other);
}

template <size_t kNumber>
void run_step(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (Op::of(op).is_whole_on(runtime::current_device()) && !is_lost_by_engine(op, *stack))
    return run_boxed(op, stack);
  all_steps()[kNumber].parts.callBoxed(op, own_keys(), stack);
}

// All that a step returns is in its operands, whose metadata stays.
void forget_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

template <size_t... kNumbers>
void register_steps(torch::Library& library, std::index_sequence<kNumbers...>) {
  (library.impl(all_steps()[kNumbers].name, torch::CppFunction::makeFromBoxedFunction<&run_step<kNumbers>>()),
   ...);
}

}  // namespace

void register_optimizers() {
  register_steps(library(own_key()), std::make_index_sequence<8>());
  // PyTorch has shape functions for the first overloads of Adam and AdamW alone, in Python.
  for (const char* name : {"_fused_adam_.tensor_lr", "_fused_adamw_.tensor_lr", "_fused_sgd_",
                           "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr"}) {
    library(c10::DispatchKey::Meta)
        .impl(name, torch::CppFunction::makeFromBoxedFunction<&forget_arguments>());
  }
}

}  // namespace loom::glue
