// The ops that draw random numbers, as CUDA's kernels draw them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

#include "torch/random/grid.h"

namespace loom::glue::cuda_random {

using Arguments = c10::ArrayRef<c10::IValue>;
using Results = std::vector<at::Tensor>;

struct RandomOp {
  std::string_view name;  // with the overload, as "aten::random_.from"
  // How far a call moves the offset of its generator. Sizes, dtypes and numbers decide, never values.
  uint64_t (*step)(const RandomGrid& grid, Arguments arguments);
  // Takes tensors of the engine; null: the engine's own kernel draws from the generator's seed and offset.
  // Returns nothing where no number is drawn: then the engine's kernel runs.
  Results (*kernel)(Arguments arguments, Draws& draws);
  // Its results are the first that the kernel allocates, and most often all.
  bool makes_results = false;
};

// Null for an op that draws none. `name` has the overload.
const RandomOp* random_op_of(std::string_view name);

// As exponential_() with rate 1.
void fill_exponential(at::Tensor& self, Draws& draws);

// The rows of each file.
extern const c10::ArrayRef<RandomOp> kDistributionOps, kIntegerOps, kMaskOps, kSamplerOps;

}  // namespace loom::glue::cuda_random
