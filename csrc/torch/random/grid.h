// How CUDA's kernels of random numbers divide a tensor over threads, and where their numbers start.
//
// Source of all of csrc/torch/random: PyTorch's public kernels (aten/src/ATen/native/cuda: Dropout.cu,
// Distributions.cu and its templates, MultinomialKernel.cu, Randperm.cu, RreluWithNoise.cu), and cuRAND's
// documentation of its device functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/chip.h"
#include "torch/engine/generator.h"

namespace loom::glue::cuda_random {

using runtime::RandomGrid;

inline constexpr int64_t kBlockThreads = 256;
inline constexpr uint64_t kNumbersPerCall = 4;  // of Philox: the unit of offsets

// The threads of a kernel of which each draws `unroll` numbers at a time, and the step of the offset.
struct Policy {
  int64_t threads;
  uint64_t step;
};

// `count`: of elements, at least 1.
inline Policy policy_of(const RandomGrid& grid, int64_t count, int64_t unroll) {
  const int64_t resident = int64_t{grid.num_cores} * (grid.threads_per_core / kBlockThreads);
  const int64_t blocks = std::min((count + kBlockThreads - 1) / kBlockThreads, resident);
  const int64_t threads = blocks * kBlockThreads;
  return {threads, static_cast<uint64_t>((count - 1) / (threads * unroll) + 1) * kNumbersPerCall};
}

// Offsets are multiples of 4: steps are rounded up.
inline uint64_t rounded_step(uint64_t step) { return (step + 3) / kNumbersPerCall * kNumbersPerCall; }

// The numbers of one op, of which kernels take theirs one after another.
class Draws {
 public:
  explicit Draws(const CudaDraw& start) : grid(start.grid), seed(start.seed), offset_(start.offset) {}

  // Where the numbers of a kernel start.
  uint64_t take(uint64_t step) {
    const uint64_t before = offset_;
    offset_ += rounded_step(step);
    return before;
  }

  const RandomGrid grid;
  const uint64_t seed;

 private:
  uint64_t offset_;
};

// Which devices draw CUDA's numbers: under the name cuda those whose chip is NVIDIA's ("auto"), all ("cuda")
// or none ("loom").
void set_rule(const std::string& rule);
// The grid of a device that draws CUDA's numbers, for as long as the device is there; else null.
const RandomGrid* grid_of(int device);

}  // namespace loom::glue::cuda_random
