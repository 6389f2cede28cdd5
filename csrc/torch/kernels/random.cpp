// Random ops that have no generator argument, so that the boxed kernel cannot give them one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"
#include "torch/random/grid.h"

namespace loom::glue {

namespace {

// What CUDA's kernel returns; the random numbers are torch/random's.
std::tuple<at::Tensor, at::Tensor> drop(const at::Tensor& input, double, std::optional<bool>,
                                        std::optional<at::Generator>) {
  return {at::empty_like(input), at::empty_like(input, input.options().dtype(c10::kBool))};
}

bool draws_as_cuda(const at::Tensor& tensor) {
  return is_loom(tensor) && cuda_random::grid_of(tensor.device().index()) != nullptr;
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (input.numel() == 0) return {input, at::empty_like(input, input.options().dtype(c10::kBool))};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(c10::kBool))};
  if (draws_as_cuda(input)) {
    static const auto op = find_fused<decltype(drop)>("loom_fused::native_dropout");
    return op.call(input, p, train, default_generator());
  }
  const double keep = 1 - p;
  at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool), at::MemoryFormat::Contiguous);
  mask.bernoulli_(keep);  // in the order of the elements, wherever they lie
  // It lies in memory as the input does: compiled programs rely on that.
  if (!input.is_contiguous()) mask = at::empty_like(input, mask.options()).copy_(mask);
  at::Tensor output = at::mul(input, mask);
  return {output.mul_(1 / keep), mask};
}

// Half precision holds no number as small as the engine's kernel draws, and 0 is none of the distribution:
// CUDA's smallest is the smallest half.
void exponential(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const double rate = torch::jit::peek(*stack, 1, 3).toDouble();
  run_boxed(op, stack);
  const at::Tensor& self = stack->back().toTensor();
  if (self.scalar_type() == c10::kHalf && !std::isinf(rate) && !draws_as_cuda(self))
    self.clamp_min_(std::ldexp(1.0, -24));
}

}  // namespace

void register_random() {
  define_fused("native_dropout(Tensor input, float p, bool? train, Generator? generator) -> (Tensor, Tensor)",
               &drop);
  torch::Library& m = library(own_key());
  m.impl("native_dropout", native_dropout);
  m.impl("exponential_", torch::CppFunction::makeFromBoxedFunction<&exponential>());
}

}  // namespace loom::glue
