// What functions of cuBLAS and cuBLASLt share: the program's memory as tensors, and products of those.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

#include "torch/launch/blas_handle.h"
#include "torch/launch/blocking_streams.h"
#include "torch/launch/launch.h"

namespace loom::glue {

struct Refused {
  cublasStatus_t status;
};
inline void expect(bool holds, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
  if (!holds) throw Refused{status};
}

// For the handler of what a function has thrown: the number that stands for it. PyTorch's check of that says
// what it was.
cublasStatus_t status_of_exception();

// Runs `body` with a stream as the current one. What it throws becomes a number.
template <typename F>
cublasStatus_t on_stream(cudaStream_t stream, F&& body) {
  blas_of_thread().failure.clear();
  try {
    const runtime::StreamRef found = stream_of(stream);
    expect(found.device >= 0);
    order_streams(found);
    const c10::StreamGuard guard(torch_stream(found));
    const c10::InferenceMode no_gradients;
    body();
    return CUBLAS_STATUS_SUCCESS;
  } catch (...) {
    return status_of_exception();
  }
}

// Memory of the device, as a tensor.
at::Tensor view(const void* memory, cudaDataType type, at::IntArrayRef sizes, at::IntArrayRef strides);

at::ScalarType dtype_of(cudaDataType type);

// A batch of matrices that are stored by columns.
struct Matrices {
  const void* memory;
  cudaDataType type;
  int64_t rows, columns, leading, stride;

  at::Tensor batch(int64_t batches) const {
    return view(memory, type, {batches, rows, columns}, {stride, 1, leading});
  }
};

inline at::Tensor turned(const at::Tensor& batch, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? batch : batch.transpose(-1, -2);
}

// A number at an address of the host or of the device.
at::Scalar scalar(cublasPointerMode_t mode, const void* at, cudaDataType type);

// The type that alpha and beta have.
cudaDataType scale_type(cublasComputeType_t compute);

// C = alpha A B + beta C, of batches. What has more than one dtype is computed in that of the sums, or for
// whole numbers in double precision, which holds their sums exactly.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Scalar& alpha,
              const at::Scalar& beta, cudaDataType sums);

}  // namespace loom::glue
