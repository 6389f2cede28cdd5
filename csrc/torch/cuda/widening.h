// Dtypes of which the engine has no kernel where CUDA has one, or one that is slow and rounds otherwise: such
// a call is computed in the next wider dtype, under every name of the device, since libraries take each that
// is not the CPU for one like CUDA.
#pragma once

#include <string_view>

#include "torch/core/dtype_set.h"

namespace loom::glue {

// What an op's kernel of the engine is not asked for, from torch_loom/cuda/widening.py.
DtypeSet widened_dtypes_of(std::string_view full_name);
// The same where an operand is sparse.
DtypeSet widened_sparse_dtypes_of(std::string_view full_name);

}  // namespace loom::glue
