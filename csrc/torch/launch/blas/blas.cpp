// cuBLAS's functions on the devices. Each is a product of torch's over views of the program's memory, so that
// it is ordered by streams, captured, timed and rounded as those are.
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <loom_cuda/blas.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "torch/core/device.h"
#include "torch/launch/blas/blas_views.h"

namespace loom::glue {

namespace {

template <typename F>
cublasStatus_t on_stream_of(cublasHandle_t handle, F&& body) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return on_stream(handle->stream, body);
}

at::Scalar scalar(const cublasContext& handle, const void* at, cudaDataType type) {
  return glue::scalar(handle.pointer_mode, at, type);
}

template <typename T>
constexpr cudaDataType kTypeOf = std::is_same_v<T, float>    ? CUDA_R_32F
                                 : std::is_same_v<T, double> ? CUDA_R_64F
                                                             : CUDA_R_16F;

// op(A) of rows x columns, as A is stored.
Matrices stored(const void* memory, cudaDataType type, cublasOperation_t op, int64_t rows, int64_t columns,
                int64_t leading, int64_t stride = 0) {
  if (op != CUBLAS_OP_N) std::swap(rows, columns);
  expect(op >= CUBLAS_OP_N && op <= CUBLAS_OP_C && rows >= 0 && columns >= 0 && stride >= 0);
  expect(leading >= std::max<int64_t>(1, rows));
  return {memory, type, rows, columns, leading, stride};
}

void give(const cublasContext& handle, void* at, cudaDataType type, const at::Tensor& value) {
  expect(at != nullptr);
  if (handle.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    view(at, type, {}, {}).copy_(value);
  } else {
    at::from_blob(at, {}, dtype_of(type)).copy_(value);
  }
}

cublasStatus_t gemm_strided(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                            long long stride_a, const void* b, cudaDataType b_type, int ldb,
                            long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc,
                            long long stride_c, int batches, cudaDataType scale) {
  return on_stream_of(handle, [&] {
    const Matrices of_a = stored(a, a_type, op_a, m, k, lda, stride_a);
    const Matrices of_b = stored(b, b_type, op_b, k, n, ldb, stride_b);
    const Matrices of_c = stored(c, c_type, CUBLAS_OP_N, m, n, ldc, stride_c);
    expect(batches >= 0);
    if (m == 0 || n == 0 || batches == 0) return;
    multiply(turned(of_a.batch(batches), op_a), turned(of_b.batch(batches), op_b), of_c.batch(batches),
             scalar(*handle, alpha, scale), scalar(*handle, beta, scale), scale);
  });
}

// The addresses of a batch's matrices. They are in device memory: the host waits for them.
std::vector<void*> addresses(const cublasContext& handle, const void* const* at, int batches) {
  std::vector<void*> found(static_cast<size_t>(batches));
  TORCH_CHECK(cudaMemcpyAsync(found.data(), at, found.size() * sizeof(void*), cudaMemcpyDefault,
                              handle.stream) == cudaSuccess &&
                  cudaStreamSynchronize(handle.stream) == cudaSuccess,
              "the host reads the addresses of a batch's matrices, which cannot be captured: "
              "call cublasGemmStridedBatched");
  return found;
}

cublasStatus_t gemm_by_address(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                               int n, int k, const void* alpha, const void* const* a, cudaDataType a_type,
                               int lda, const void* const* b, cudaDataType b_type, int ldb, const void* beta,
                               void* const* c, cudaDataType c_type, int ldc, int batches,
                               cudaDataType scale) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (batches < 0) return CUBLAS_STATUS_INVALID_VALUE;
  std::array<std::vector<void*>, 3> found;
  const cublasStatus_t status = on_stream_of(handle, [&] {
    found = {addresses(*handle, a, batches), addresses(*handle, b, batches), addresses(*handle, c, batches)};
  });
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (size_t i = 0; i < static_cast<size_t>(batches); ++i) {
    const cublasStatus_t each =
        gemm_strided(handle, op_a, op_b, m, n, k, alpha, found[0][i], a_type, lda, 0, found[1][i], b_type,
                     ldb, 0, beta, found[2][i], c_type, ldc, 0, 1, scale);
    if (each != CUBLAS_STATUS_SUCCESS) return each;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// A vector of `n` numbers, each `step` after the last one; backwards, it begins at its end.
at::Tensor vector(const void* memory, cudaDataType type, int64_t n, int64_t step) {
  expect(step != 0 && n >= 0);
  if (step > 0) return view(memory, type, {n}, {step});
  return view(memory, type, {n}, {-step}).flip(0);
}
// One that is written to.
at::Tensor target(void* memory, cudaDataType type, int64_t n, int64_t step) {
  expect(step > 0, step == 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_SUPPORTED);
  return vector(memory, type, n, step);
}

template <typename T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha, const T* a,
                    int lda, const T* x, int x_step, const T* beta, T* y, int y_step) {
  constexpr cudaDataType kType = kTypeOf<T>;
  return on_stream_of(handle, [&] {
    const Matrices matrix = stored(a, kType, CUBLAS_OP_N, m, n, lda);
    const bool is_turned = op != CUBLAS_OP_N;
    at::Tensor out = target(y, kType, is_turned ? n : m, y_step).unsqueeze(1);
    at::addmm_out(out, out, turned(matrix.batch(1)[0], op),
                  vector(x, kType, is_turned ? m : n, x_step).unsqueeze(1), scalar(*handle, beta, kType),
                  scalar(*handle, alpha, kType));
  });
}

template <typename T>
cublasStatus_t ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int x_step, const T* y,
                   int y_step, T* a, int lda) {
  constexpr cudaDataType kType = kTypeOf<T>;
  return on_stream_of(handle, [&] {
    at::Tensor out = stored(a, kType, CUBLAS_OP_N, m, n, lda).batch(1)[0];
    at::addmm_out(out, out, vector(x, kType, m, x_step).unsqueeze(1),
                  vector(y, kType, n, y_step).unsqueeze(0), 1, scalar(*handle, alpha, kType));
  });
}

// C = alpha op(A) + beta op(B); what is scaled by 0 is not read.
template <typename T>
cublasStatus_t geam(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                    const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {
  constexpr cudaDataType kType = kTypeOf<T>;
  return on_stream_of(handle, [&] {
    at::Tensor out = stored(c, kType, CUBLAS_OP_N, m, n, ldc).batch(1)[0];
    const at::Scalar of_a = scalar(*handle, alpha, kType), of_b = scalar(*handle, beta, kType);
    at::Tensor sum;
    const auto add = [&](const at::Scalar& factor, const void* memory, cublasOperation_t op, int leading) {
      if (factor.toDouble() == 0) return;
      const at::Tensor term = turned(stored(memory, kType, op, m, n, leading).batch(1)[0], op).mul(factor);
      sum = sum.defined() ? sum.add(term) : term;
    };
    add(of_a, a, op_a, lda);
    add(of_b, b, op_b, ldb);
    if (sum.defined()) {
      out.copy_(sum);
    } else {
      out.zero_();
    }
  });
}

template <typename T, typename F>
cublasStatus_t reduced(cublasHandle_t handle, T* result, F&& reduce) {
  return on_stream_of(handle, [&] { give(*handle, result, kTypeOf<T>, reduce()); });
}

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                            const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return gemm_strided(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                      c_type, ldc, 0, 1, scale_type(compute));
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType a_type, int lda, long long stride_a,
                                          const void* b, cudaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long stride_c, int batches, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  return gemm_strided(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b,
                      beta, c, c_type, ldc, stride_c, batches, scale_type(compute));
}
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                   int m, int n, int k, const void* alpha, const void* const a[],
                                   cudaDataType a_type, int lda, const void* const b[], cudaDataType b_type,
                                   int ldb, const void* beta, void* const c[], cudaDataType c_type, int ldc,
                                   int batches, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return gemm_by_address(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type,
                         ldc, batches, scale_type(compute));
}

#define LOOM_GEMM(X, T)                                                                                    \
  cublasStatus_t cublas##X##gemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, \
                                    int m, int n, int k, const T* alpha, const T* a, int lda, const T* b,  \
                                    int ldb, const T* beta, T* c, int ldc) {                               \
    constexpr cudaDataType kType = kTypeOf<T>;                                                             \
    return gemm_strided(handle, op_a, op_b, m, n, k, alpha, a, kType, lda, 0, b, kType, ldb, 0, beta, c,   \
                        kType, ldc, 0, 1, kType);                                                          \
  }                                                                                                        \
  cublasStatus_t cublas##X##gemmStridedBatched(                                                            \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,          \
      const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb, long long stride_b,    \
      const T* beta, T* c, int ldc, long long stride_c, int batches) {                                     \
    constexpr cudaDataType kType = kTypeOf<T>;                                                             \
    return gemm_strided(handle, op_a, op_b, m, n, k, alpha, a, kType, lda, stride_a, b, kType, ldb,        \
                        stride_b, beta, c, kType, ldc, stride_c, batches, kType);                          \
  }                                                                                                        \
  cublasStatus_t cublas##X##gemmBatched(cublasHandle_t handle, cublasOperation_t op_a,                     \
                                        cublasOperation_t op_b, int m, int n, int k, const T* alpha,       \
                                        const T* const a[], int lda, const T* const b[], int ldb,          \
                                        const T* beta, T* const c[], int ldc, int batches) {               \
    constexpr cudaDataType kType = kTypeOf<T>;                                                             \
    return gemm_by_address(handle, op_a, op_b, m, n, k, alpha, reinterpret_cast<const void* const*>(a),    \
                           kType, lda, reinterpret_cast<const void* const*>(b), kType, ldb, beta,          \
                           reinterpret_cast<void* const*>(c), kType, ldc, batches, kType);                 \
  }
LOOM_GEMM(H, struct __half)
LOOM_GEMM(S, float)
LOOM_GEMM(D, double)

#define LOOM_VECTORS(X, T)                                                                                   \
  cublasStatus_t cublas##X##gemv_v2(cublasHandle_t handle, cublasOperation_t op, int m, int n,               \
                                    const T* alpha, const T* a, int lda, const T* x, int x_step,             \
                                    const T* beta, T* y, int y_step) {                                       \
    return gemv<T>(handle, op, m, n, alpha, a, lda, x, x_step, beta, y, y_step);                             \
  }                                                                                                          \
  cublasStatus_t cublas##X##ger_v2(cublasHandle_t handle, int m, int n, const T* alpha, const T* x,          \
                                   int x_step, const T* y, int y_step, T* a, int lda) {                      \
    return ger<T>(handle, m, n, alpha, x, x_step, y, y_step, a, lda);                                        \
  }                                                                                                          \
  cublasStatus_t cublas##X##geam(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,      \
                                 int m, int n, const T* alpha, const T* a, int lda, const T* beta,           \
                                 const T* b, int ldb, T* c, int ldc) {                                       \
    return geam<T>(handle, op_a, op_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc);                           \
  }                                                                                                          \
  cublasStatus_t cublas##X##axpy_v2(cublasHandle_t handle, int n, const T* alpha, const T* x, int x_step,    \
                                    T* y, int y_step) {                                                      \
    return on_stream_of(handle, [&] {                                                                        \
      target(y, kTypeOf<T>, n, y_step)                                                                       \
          .add_(vector(x, kTypeOf<T>, n, x_step), scalar(*handle, alpha, kTypeOf<T>));                       \
    });                                                                                                      \
  }                                                                                                          \
  cublasStatus_t cublas##X##scal_v2(cublasHandle_t handle, int n, const T* alpha, T* x, int x_step) {        \
    return on_stream_of(handle,                                                                              \
                        [&] { target(x, kTypeOf<T>, n, x_step).mul_(scalar(*handle, alpha, kTypeOf<T>)); }); \
  }                                                                                                          \
  cublasStatus_t cublas##X##copy_v2(cublasHandle_t handle, int n, const T* x, int x_step, T* y,              \
                                    int y_step) {                                                            \
    return on_stream_of(handle,                                                                              \
                        [&] { target(y, kTypeOf<T>, n, y_step).copy_(vector(x, kTypeOf<T>, n, x_step)); });  \
  }                                                                                                          \
  cublasStatus_t cublas##X##dot_v2(cublasHandle_t handle, int n, const T* x, int x_step, const T* y,         \
                                   int y_step, T* result) {                                                  \
    return reduced(handle, result, [&] {                                                                     \
      return at::dot(vector(x, kTypeOf<T>, n, x_step), vector(y, kTypeOf<T>, n, y_step));                    \
    });                                                                                                      \
  }                                                                                                          \
  cublasStatus_t cublas##X##nrm2_v2(cublasHandle_t handle, int n, const T* x, int x_step, T* result) {       \
    return reduced(handle, result,                                                                           \
                   [&] { return at::linalg_vector_norm(vector(x, kTypeOf<T>, n, x_step), 2); });             \
  }                                                                                                          \
  cublasStatus_t cublas##X##asum_v2(cublasHandle_t handle, int n, const T* x, int x_step, T* result) {       \
    return reduced(handle, result,                                                                           \
                   [&] { return at::linalg_vector_norm(vector(x, kTypeOf<T>, n, x_step), 1); });             \
  }
LOOM_VECTORS(S, float)
LOOM_VECTORS(D, double)
