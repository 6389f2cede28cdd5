// Matrix products by the instructions of GPUs.
#pragma once

#include <cstdint>
#include <functional>

#include "numerics/tensor_core/rules.h"

namespace loom::numerics::tensor_core {

// Operands as they lie in memory; multiply() lays them out for the kernels, and fills the last step of K with
// zeros.
struct Matrices {
  const float* left;   // rows x depth
  const float* right;  // depth x columns
  int64_t rows, depth, columns;
  int64_t right_row_stride, right_column_stride;
};

// Runs a body over parts of [0, count), each of at least `grain`.
using Shared = void (*)(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// The chain of one work unit over K, added to the sums of `out`, rows x columns.
void multiply(const Matrices& operands, const Rule& rule, int64_t instruction_depth, float* out,
              Shared share);

}  // namespace loom::numerics::tensor_core
