// Dropout within attention: where forward's random numbers start, and the weights that backward finds again
// from it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::glue {

// Whose numbers decide. kOwn: one for each weight in the order of the elements, and each offset is a stream
// of its own. kEfficient: CUDA's memory-efficient kernel; one sequence of numbers, of which the offset skips
// some. kFlash: CUDA's flash kernel; a byte for each weight, of which a warp's threads draw sixteen at a time
// as they hold the products of matrix units.
enum class DropoutScheme : int64_t { kOwn, kEfficient, kFlash };

// Where the numbers of a call start.
struct DropoutNumbers {
  uint64_t seed, offset;
  uint64_t sequence = 0;  // of packed ones: each has its own
  DropoutScheme scheme = DropoutScheme::kOwn;

  // Of tensors with one number of int64 each.
  DropoutNumbers(const at::Tensor& seed, const at::Tensor& offset, int64_t sequence = 0,
                 DropoutScheme scheme = DropoutScheme::kOwn);
  DropoutNumbers(uint64_t seed, uint64_t offset, DropoutScheme scheme = DropoutScheme::kOwn)
      : seed(seed), offset(offset), scheme(scheme) {}

  // Fills a tensor [..., heads, rows, columns] with numbers that are greater than `dropout` where a weight is
  // kept: above 0 and up to 1, or under kFlash 2 and -1.
  at::Tensor& fill(at::Tensor& self, double dropout) const;
};

// Takes the numbers of this call from the generator: writes seed and offset into the int64 numbers `state`.
DropoutNumbers draw_numbers(const at::Tensor& state, const std::optional<at::Generator>& generator,
                            DropoutScheme scheme = DropoutScheme::kOwn);

// What dropout multiplies weights with: 0 where the number is at most the probability.
at::Tensor kept_weights(const at::Tensor& weights, double dropout, const DropoutNumbers& numbers);

}  // namespace loom::glue
