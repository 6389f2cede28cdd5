#include "torch/engine/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "runtime/philox.h"

namespace loom::glue {

namespace {

using at::Tensor;

constexpr int64_t kWords = 4;  // of a call of Philox

// Of 32 bits, as cuRAND: above 0 and up to 1.
float in_unit_interval(uint32_t word) { return static_cast<float>(word) * 0x1p-32F + 0x1p-33F; }

}  // namespace

DropoutNumbers::DropoutNumbers(const Tensor& seed, const Tensor& offset, int64_t sequence)
    : seed(static_cast<uint64_t>(*seed.const_data_ptr<int64_t>())),
      offset(static_cast<uint64_t>(*offset.const_data_ptr<int64_t>())),
      sequence(static_cast<uint64_t>(sequence)) {}

Tensor& DropoutNumbers::fill(Tensor& self) const {
  // float32, whatever the weights are: the numbers do not depend on the dtype of the call.
  const Tensor numbers = at::empty(self.sizes(), self.options().dtype(at::kFloat));
  float* const values = numbers.mutable_data_ptr<float>();
  const int64_t count = numbers.numel();
  constexpr int64_t kGrain = 2048;
  constexpr uint64_t kFirstBit = 40;  // no sequence has as many weights
  at::parallel_for(0, (count + kWords - 1) / kWords, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto words =
          runtime::philox(seed, (sequence << kFirstBit) + static_cast<uint64_t>(block), offset);
      const int64_t first = block * kWords;
      for (int64_t i = 0; i < std::min(kWords, count - first); ++i) {
        values[first + i] = in_unit_interval(words[static_cast<size_t>(i)]);
      }
    }
  });
  return self.copy_(numbers);
}

DropoutNumbers draw_numbers(const Tensor& state, const std::optional<at::Generator>& generator) {
  TORCH_INTERNAL_ASSERT(generator.has_value());
  const DropoutNumbers numbers(generator->current_seed(), generator->get_offset());
  auto* const both = state.mutable_data_ptr<int64_t>();
  both[0] = static_cast<int64_t>(numbers.seed);
  both[1] = static_cast<int64_t>(numbers.offset);
  return numbers;
}

Tensor kept_weights(const Tensor& weights, double dropout, const DropoutNumbers& numbers) {
  if (dropout >= 1) return at::zeros_like(weights);
  Tensor drawn = at::empty(weights.sizes(), weights.options().dtype(at::kFloat));
  return numbers.fill(drawn).gt(dropout).to(weights.scalar_type()).div_(1 - dropout);
}

}  // namespace loom::glue
