// Dtypes that CUDA has kernels for and the engine has not: under the name cuda such a call is computed in the
// next wider dtype.
#pragma once

#include <string_view>

#include "torch/core/dtype_set.h"

namespace loom::glue {

// What an op's kernel of the engine lacks, from torch_loom/cuda/widening.py; nothing under any name but cuda.
DtypeSet widened_dtypes_of(std::string_view full_name);
// The same where an operand is sparse.
DtypeSet widened_sparse_dtypes_of(std::string_view full_name);

}  // namespace loom::glue
