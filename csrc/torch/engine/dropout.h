// Dropout within attention: a seed that forward draws, and the weights that backward finds again from it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::glue {

// Writes a new seed into the first of the int64 numbers of `state`.
void draw_seed(const at::Tensor& state, std::optional<at::Generator> generator);
// Its random numbers for the whole call, or for one of the packed sequences.
at::Generator generator_of(const at::Tensor& state, int64_t sequence = 0);
at::Generator generator_from(uint64_t seed);

// What dropout multiplies weights with: 0 where the next random number is at most the probability.
at::Tensor kept_weights(const at::Tensor& weights, double dropout, const at::Generator& generator);

// Fills a tensor with those random numbers, from 0 to 1.
at::Tensor& fill_with_dropout_numbers(at::Tensor& self, const at::Generator& generator);

}  // namespace loom::glue
