// Dropout within attention: where forward's random numbers start, and the weights that backward finds again
// from it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::glue {

// Numbers of Philox, one for each weight in the order of the elements. Each offset is a stream of its own; of
// offset 0 they are those of CUDA's memory-efficient kernel.
struct DropoutNumbers {
  uint64_t seed, offset;
  uint64_t sequence = 0;  // of packed ones: each has its own

  // Of tensors with one number of int64 each.
  DropoutNumbers(const at::Tensor& seed, const at::Tensor& offset, int64_t sequence = 0);
  DropoutNumbers(uint64_t seed, uint64_t offset) : seed(seed), offset(offset) {}

  // Fills a tensor with them, above 0 and up to 1.
  at::Tensor& fill(at::Tensor& self) const;
};

// Takes the numbers of this call from the generator: writes seed and offset into the int64 numbers `state`.
DropoutNumbers draw_numbers(const at::Tensor& state, const std::optional<at::Generator>& generator);

// What dropout multiplies weights with: 0 where the number is at most the probability.
at::Tensor kept_weights(const at::Tensor& weights, double dropout, const DropoutNumbers& numbers);

}  // namespace loom::glue
