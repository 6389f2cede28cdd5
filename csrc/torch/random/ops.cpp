#include "torch/random/ops.h"

#include <algorithm>

namespace loom::glue::cuda_random {

const RandomOp* random_op_of(std::string_view name) {
  for (const auto& rows : {kDistributionOps, kIntegerOps, kMaskOps, kSamplerOps}) {
    const auto* const found =
        std::find_if(rows.begin(), rows.end(), [&](const RandomOp& row) { return row.name == name; });
    if (found != rows.end()) return found;
  }
  return nullptr;
}

}  // namespace loom::glue::cuda_random
