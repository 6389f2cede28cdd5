#include "torch/cuda/values/fused_loops.h"

namespace loom::glue {

LOOM_FUSES void add_squares(float* sums, const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = fused(values[i], values[i], sums[i]);
}
LOOM_FUSES void add_squares(double* sums, const double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = fused(values[i], values[i], sums[i]);
}

}  // namespace loom::glue
