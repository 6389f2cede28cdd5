// Random numbers of the device for the engine's kernels.
#pragma once

#include "runtime/chip.h"
#include "torch/core/generator.h"

namespace loom::glue {

// Where the numbers of one op start, if they are those of CUDA's kernels.
struct CudaDraw {
  uint64_t seed = 0, offset = 0;
  runtime::RandomGrid grid;
};

// The generator of an op that a graph keeps: filled anew before each run.
struct CapturedDraw {
  at::Generator engine;
  std::shared_ptr<const CapturedRandom> random;  // null: the op is no graph's, or draws no numbers
  uint64_t offset = 0;                           // from where the replay's numbers start
  const runtime::RandomGrid* grid = nullptr;     // of the device's chip; null: not CUDA's numbers

  void refill() const;
};

// A temporary generator of the engine, filled from Philox(seed, offset) of `source`, whose offset then moves
// on by `step`. Each offset is a stream of numbers of its own, and all 64 seed bits count; the CPU's own
// generator is never touched. `is_kept`: it is used after this call of the op, else until this thread's next
// call. `grid`: for a kernel that draws CUDA's numbers; it outlives the generator.
at::Generator engine_generator(const at::Generator& source, bool is_kept, uint64_t step = kOffsetStep,
                               const runtime::RandomGrid* grid = nullptr);

// Where the numbers start of an op that draws CUDA's; null: the engine's kernel draws its own.
const CudaDraw* cuda_draw_of(const at::Generator& engine);

// One of the engine's that nothing has filled.
at::Generator new_engine_generator();

}  // namespace loom::glue
