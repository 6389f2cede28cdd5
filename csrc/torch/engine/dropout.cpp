#include "torch/engine/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <mutex>

namespace loom::glue {

namespace {

using at::Tensor;

// float32, whatever the weights are: the numbers do not depend on the dtype of the call.
Tensor numbers_like(const Tensor& weights, const at::Generator& generator) {
  return at::empty(weights.sizes(), weights.options().dtype(at::kFloat)).uniform_(0, 1, generator);
}

}  // namespace

at::Generator generator_from(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

void draw_seed(const Tensor& state, std::optional<at::Generator> generator) {
  auto* cpu =
      at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(cpu->mutex_);
  *state.mutable_data_ptr<int64_t>() = static_cast<int64_t>(cpu->random64());
}

at::Generator generator_of(const Tensor& state, int64_t sequence) {
  return generator_from(static_cast<uint64_t>(*state.const_data_ptr<int64_t>()) + sequence);
}

Tensor kept_weights(const Tensor& weights, double dropout, const at::Generator& generator) {
  if (dropout >= 1) return at::zeros_like(weights);
  return numbers_like(weights, generator).gt(dropout).to(weights.scalar_type()).div_(1 - dropout);
}

Tensor& fill_with_dropout_numbers(Tensor& self, const at::Generator& generator) {
  return self.copy_(numbers_like(self, generator));
}

}  // namespace loom::glue
