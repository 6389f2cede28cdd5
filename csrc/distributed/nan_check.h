// What TORCH_NCCL_NAN_CHECK asks for: numbers that a rank gives are no NaN.
#pragma once

#include <string>

#include "distributed/collectives.h"

namespace loom::distributed {

// What to say of the first NaN in a floating-point tensor that `rank` gives, or "".
std::string nan_found(const Task& task, int rank);

}  // namespace loom::distributed
