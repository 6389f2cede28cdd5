// cuBLAS's products of matrices and vectors, computed by torch's: declared here, defined in the extension
// module. Matrices are stored by columns.
#pragma once

#include "loom_cuda/library_handles.h"

typedef struct cublasContext* cublasHandle_t;
typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2, CUBLAS_OP_HERMITAN = 2 } cublasOperation_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 } cublasFillMode_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1,
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT = -1,
  // All compute the same here.
  CUBLAS_GEMM_ALGO0 = 0,
  CUBLAS_GEMM_ALGO1,
  CUBLAS_GEMM_ALGO2,
  CUBLAS_GEMM_ALGO3,
  CUBLAS_GEMM_ALGO4,
  CUBLAS_GEMM_ALGO5,
  CUBLAS_GEMM_ALGO6,
  CUBLAS_GEMM_ALGO7,
  CUBLAS_GEMM_ALGO8,
  CUBLAS_GEMM_ALGO9,
  CUBLAS_GEMM_ALGO10,
  CUBLAS_GEMM_ALGO11,
  CUBLAS_GEMM_ALGO12,
  CUBLAS_GEMM_ALGO13,
  CUBLAS_GEMM_ALGO14,
  CUBLAS_GEMM_ALGO15,
  CUBLAS_GEMM_ALGO16,
  CUBLAS_GEMM_ALGO17,
  CUBLAS_GEMM_ALGO18,
  CUBLAS_GEMM_ALGO19,
  CUBLAS_GEMM_ALGO20,
  CUBLAS_GEMM_ALGO21,
  CUBLAS_GEMM_ALGO22,
  CUBLAS_GEMM_ALGO23,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
  CUBLAS_GEMM_ALGO1_TENSOR_OP,
  CUBLAS_GEMM_ALGO2_TENSOR_OP,
  CUBLAS_GEMM_ALGO3_TENSOR_OP,
  CUBLAS_GEMM_ALGO4_TENSOR_OP,
  CUBLAS_GEMM_ALGO5_TENSOR_OP,
  CUBLAS_GEMM_ALGO6_TENSOR_OP,
  CUBLAS_GEMM_ALGO7_TENSOR_OP,
  CUBLAS_GEMM_ALGO8_TENSOR_OP,
  CUBLAS_GEMM_ALGO9_TENSOR_OP,
  CUBLAS_GEMM_ALGO10_TENSOR_OP,
  CUBLAS_GEMM_ALGO11_TENSOR_OP,
  CUBLAS_GEMM_ALGO12_TENSOR_OP,
  CUBLAS_GEMM_ALGO13_TENSOR_OP,
  CUBLAS_GEMM_ALGO14_TENSOR_OP,
  CUBLAS_GEMM_ALGO15_TENSOR_OP
} cublasGemmAlgo_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;
#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VERSION 130000

LOOM_CUDART cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
LOOM_CUDART cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
LOOM_CUDART cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version);
LOOM_CUDART cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
LOOM_CUDART cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream);
LOOM_CUDART cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes);
LOOM_CUDART cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode);
LOOM_CUDART cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode);
LOOM_CUDART cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode);
LOOM_CUDART cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
LOOM_CUDART cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
LOOM_CUDART const char* cublasGetStatusName(cublasStatus_t status);
LOOM_CUDART const char* cublasGetStatusString(cublasStatus_t status);
#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSetStream cublasSetStream_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasSetPointerMode cublasSetPointerMode_v2

// C = alpha op(A) op(B) + beta C, of m x k and k x n.
LOOM_CUDART cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                        int m, int n, int k, const void* alpha, const void* a,
                                        cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                                        int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                                        cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
LOOM_CUDART cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b,
    cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc,
    long long stride_c, int batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
// The matrices of a batch by an array of their addresses in device memory, which the host waits for.
LOOM_CUDART cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                               cublasOperation_t op_b, int m, int n, int k, const void* alpha,
                                               const void* const a[], cudaDataType a_type, int lda,
                                               const void* const b[], cudaDataType b_type, int ldb,
                                               const void* beta, void* const c[], cudaDataType c_type,
                                               int ldc, int batches, cublasComputeType_t compute,
                                               cublasGemmAlgo_t algorithm);
#ifdef __cplusplus
// As in CUDA 10, where the type of the sums was one of the data types.
static inline cublasComputeType_t loom_cuda_sums(cudaDataType type) {
  return type == CUDA_R_16F   ? CUBLAS_COMPUTE_16F
         : type == CUDA_R_64F ? CUBLAS_COMPUTE_64F
         : type == CUDA_R_32I ? CUBLAS_COMPUTE_32I
                              : CUBLAS_COMPUTE_32F;
}
static inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType a_type, int lda, const void* b,
                                          cudaDataType b_type, int ldb, const void* beta, void* c,
                                          cudaDataType c_type, int ldc, cudaDataType sums,
                                          cublasGemmAlgo_t algorithm) {
  return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type,
                      ldc, loom_cuda_sums(sums), algorithm);
}
static inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b,
    cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc,
    long long stride_c, int batches, cudaDataType sums, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type,
                                    ldb, stride_b, beta, c, c_type, ldc, stride_c, batches,
                                    loom_cuda_sums(sums), algorithm);
}
#endif

#define LOOM_CUDA_BLAS_GEMM(X, T)                                                                            \
  LOOM_CUDART cublasStatus_t cublas##X##gemm_v2(                                                             \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,            \
      const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);               \
  LOOM_CUDART cublasStatus_t cublas##X##gemmStridedBatched(                                                  \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,            \
      const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb, long long stride_b,      \
      const T* beta, T* c, int ldc, long long stride_c, int batches);                                        \
  LOOM_CUDART cublasStatus_t cublas##X##gemmBatched(                                                         \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,            \
      const T* alpha, const T* const a[], int lda, const T* const b[], int ldb, const T* beta, T* const c[], \
      int ldc, int batches);
#define LOOM_CUDA_BLAS_VECTORS(X, T)                                                                         \
  LOOM_CUDART cublasStatus_t cublas##X##gemv_v2(cublasHandle_t handle, cublasOperation_t op, int m, int n,   \
                                                const T* alpha, const T* a, int lda, const T* x, int x_step, \
                                                const T* beta, T* y, int y_step);                            \
  LOOM_CUDART cublasStatus_t cublas##X##ger_v2(cublasHandle_t handle, int m, int n, const T* alpha,          \
                                               const T* x, int x_step, const T* y, int y_step, T* a,         \
                                               int lda);                                                     \
  LOOM_CUDART cublasStatus_t cublas##X##geam(                                                                \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, const T* alpha,   \
      const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc);                               \
  LOOM_CUDART cublasStatus_t cublas##X##axpy_v2(cublasHandle_t handle, int n, const T* alpha, const T* x,    \
                                                int x_step, T* y, int y_step);                               \
  LOOM_CUDART cublasStatus_t cublas##X##scal_v2(cublasHandle_t handle, int n, const T* alpha, T* x,          \
                                                int x_step);                                                 \
  LOOM_CUDART cublasStatus_t cublas##X##copy_v2(cublasHandle_t handle, int n, const T* x, int x_step, T* y,  \
                                                int y_step);                                                 \
  LOOM_CUDART cublasStatus_t cublas##X##dot_v2(cublasHandle_t handle, int n, const T* x, int x_step,         \
                                               const T* y, int y_step, T* result);                           \
  LOOM_CUDART cublasStatus_t cublas##X##nrm2_v2(cublasHandle_t handle, int n, const T* x, int x_step,        \
                                                T* result);                                                  \
  LOOM_CUDART cublasStatus_t cublas##X##asum_v2(cublasHandle_t handle, int n, const T* x, int x_step,        \
                                                T* result);
#ifdef __cplusplus
struct __half;
LOOM_CUDA_BLAS_GEMM(H, struct __half)
#endif
LOOM_CUDA_BLAS_GEMM(S, float)
LOOM_CUDA_BLAS_GEMM(D, double)
LOOM_CUDA_BLAS_VECTORS(S, float)
LOOM_CUDA_BLAS_VECTORS(D, double)
#undef LOOM_CUDA_BLAS_GEMM
#undef LOOM_CUDA_BLAS_VECTORS
#define cublasHgemm cublasHgemm_v2
#define cublasSgemm cublasSgemm_v2
#define cublasDgemm cublasDgemm_v2
#define cublasSgemv cublasSgemv_v2
#define cublasSger cublasSger_v2
#define cublasSaxpy cublasSaxpy_v2
#define cublasSscal cublasSscal_v2
#define cublasScopy cublasScopy_v2
#define cublasSdot cublasSdot_v2
#define cublasSnrm2 cublasSnrm2_v2
#define cublasSasum cublasSasum_v2
#define cublasDgemv cublasDgemv_v2
#define cublasDger cublasDger_v2
#define cublasDaxpy cublasDaxpy_v2
#define cublasDscal cublasDscal_v2
#define cublasDcopy cublasDcopy_v2
#define cublasDdot cublasDdot_v2
#define cublasDnrm2 cublasDnrm2_v2
#define cublasDasum cublasDasum_v2
