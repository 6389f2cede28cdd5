// Handles of cuBLAS: the program's own, and the one of a thread that PyTorch gives.
#include "torch/launch/blas_handle.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAStream.h>

#include "torch/core/device.h"

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

#define LOOM_FIELD(Set, Get, T, field)                           \
  cublasStatus_t Set(cublasHandle_t handle, T value) {           \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED; \
    handle->field = value;                                       \
    return CUBLAS_STATUS_SUCCESS;                                \
  }                                                              \
  cublasStatus_t Get(cublasHandle_t handle, T* value) {          \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED; \
    *value = handle->field;                                      \
    return CUBLAS_STATUS_SUCCESS;                                \
  }
LOOM_FIELD(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, stream)
LOOM_FIELD(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode)
LOOM_FIELD(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math)

// Torch's products take their own temporary memory, and sum in one order.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status of cuBLAS";
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

namespace at::cuda {

namespace blas {
// What PyTorch's check of a status throws with.
const char* _cublasGetErrorEnum(cublasStatus_t error) {
  const std::string& why = loom::glue::blas_of_thread().failure;
  if (why.empty() || (error != CUBLAS_STATUS_EXECUTION_FAILED && error != CUBLAS_STATUS_ALLOC_FAILED))
    return cublasGetStatusName(error);
  std::string& text = loom::glue::blas_of_thread().shown;
  text = std::string(cublasGetStatusName(error)) + " (" + why + ")";
  return text.c_str();
}
}  // namespace blas

cublasHandle_t getCurrentCUDABlasHandle(bool) {
  loom::glue::devices();
  cublasContext& handle = loom::glue::blas_of_thread().handles[c10::cuda::current_device()];
  handle.stream = c10::cuda::getCurrentCUDAStream().stream();
  return &handle;
}

}  // namespace at::cuda
