// Random numbers of the device for the engine's kernels.
#pragma once

#include "torch/core/generator.h"

namespace loom::glue {

// The generator of an op that a graph keeps: filled anew before each run.
struct CapturedDraw {
  at::Generator engine;
  std::shared_ptr<const CapturedRandom> random;  // null: the op is no graph's, or draws no numbers
  uint64_t offset = 0;                           // from where the replay's numbers start

  void refill() const;
};

// A temporary generator of the engine, filled from Philox(seed, offset) of `source`, whose offset then moves
// on. Each offset is a stream of numbers of its own, and all 64 seed bits count; the CPU's own generator is
// never touched. `is_kept`: it is used after this call of the op, else until this thread's next call.
at::Generator engine_generator(const at::Generator& source, bool is_kept);

// One of the engine's that nothing has filled.
at::Generator new_engine_generator();

}  // namespace loom::glue
