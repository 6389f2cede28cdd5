// The memory that a reduction needs beside its result on a GPU: PyTorch's kernels split long reductions over
// blocks of threads, and each block leaves a partial result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tape.h"

namespace loom::runtime {

struct ReductionUnits {
  int64_t num_cores = 0, threads_per_core = 0;  // 0: reductions need no memory
};

// A tensor that is reduced as a matrix: over the rows of each column, or over the columns of each row.
struct ReductionShape {
  int64_t num_outputs, inputs_per_output;
  bool is_over_rows;  // neighbours in memory belong to different results
  int64_t result_bytes;
};

// Bytes of the partial results; 0 if a block of threads makes each result alone.
size_t partial_bytes(const ReductionShape& shape, const ReductionUnits& units);

// The same of a command, by its first input and its argument "dim". 0 where these do not say it.
size_t reduction_bytes(const Command& command, const ReductionUnits& units);

}  // namespace loom::runtime
