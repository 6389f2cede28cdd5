// What a handle of cuBLAS is here.
#pragma once

#include <loom_cuda/blas.h>

#include <map>
#include <string>

struct cublasContext {
  cudaStream_t stream = nullptr;  // null: the default stream of the device that is current
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;  // for cublasGetMathMode(): torch's own settings decide
};

namespace loom::glue {

// A thread's own.
struct BlasOfThread {
  std::string failure, shown;  // why its last call failed, as torch said it; what PyTorch throws with
  std::map<int, cublasContext> handles;  // PyTorch's, by device
};
BlasOfThread& blas_of_thread();

}  // namespace loom::glue
