// What a handle of cuBLAS is here.
#pragma once

#include <loom_cuda/blas.h>

#include <string>

struct cublasContext {
  cudaStream_t stream = nullptr;  // null: the default stream of the device that is current
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;  // for cublasGetMathMode(): torch's own settings decide
};

namespace loom::glue {

// Why the last call of this thread failed, as torch said it; empty if it did not.
std::string& blas_failure();

}  // namespace loom::glue
