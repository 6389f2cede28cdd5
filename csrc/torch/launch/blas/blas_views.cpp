#include "torch/launch/blas/blas_views.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/from_blob.h>

#include <exception>

#include "torch/core/device.h"

namespace loom::glue {

cublasStatus_t status_of_exception() {
  try {
    throw;
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const c10::OutOfMemoryError& error) {
    blas_of_thread().failure = error.what_without_backtrace();
    return CUBLAS_STATUS_ALLOC_FAILED;
  } catch (const c10::Error& error) {
    blas_of_thread().failure = error.what_without_backtrace();
    return CUBLAS_STATUS_EXECUTION_FAILED;
  } catch (const std::exception& error) {
    blas_of_thread().failure = error.what();
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

at::ScalarType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return at::kHalf;
    case CUDA_R_16BF:
      return at::kBFloat16;
    case CUDA_R_32F:
      return at::kFloat;
    case CUDA_R_64F:
      return at::kDouble;
    case CUDA_R_8I:
      return at::kChar;
    case CUDA_R_8U:
      return at::kByte;
    case CUDA_R_32I:
      return at::kInt;
    case CUDA_R_8F_E4M3:
      return at::kFloat8_e4m3fn;
    case CUDA_R_8F_E5M2:
      return at::kFloat8_e5m2;
    default:
      throw Refused{CUBLAS_STATUS_NOT_SUPPORTED};
  }
}
at::Tensor view(const void* memory, cudaDataType type, at::IntArrayRef sizes, at::IntArrayRef strides) {
  expect(c10::multiply_integers(sizes) == 0 || devices().locate(memory).kind == driver::AddressKind::kDevice);
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(runtime::current_device()));
  return at::for_blob(const_cast<void*>(memory), sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(dtype_of(type)).device(device))
      .target_device(device)
      .make_tensor();
}

at::Scalar scalar(cublasPointerMode_t mode, const void* at, cudaDataType type) {
  expect(at != nullptr);
  if (mode == CUBLAS_POINTER_MODE_DEVICE) return view(at, type, {}, {}).item();
  switch (type) {
    case CUDA_R_32F:
      return *static_cast<const float*>(at);
    case CUDA_R_64F:
      return *static_cast<const double*>(at);
    case CUDA_R_16F:
      return static_cast<float>(*static_cast<const c10::Half*>(at));
    default:
      return *static_cast<const int32_t*>(at);
  }
}

cudaDataType scale_type(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return CUDA_R_32I;
    default:
      return CUDA_R_32F;
  }
}

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Scalar& alpha,
              const at::Scalar& beta, cudaDataType sums) {
  if (a.scalar_type() == c.scalar_type() && b.scalar_type() == c.scalar_type() && c.is_floating_point()) {
    at::Tensor out = c.size(0) == 1 ? c[0] : c;
    if (c.size(0) == 1) {
      at::addmm_out(out, out, a[0], b[0], beta, alpha);
    } else {
      at::baddbmm_out(out, out, a, b, beta, alpha);
    }
    return;
  }
  const at::ScalarType wide = sums == CUDA_R_32F || sums == CUDA_R_16F ? at::kFloat : at::kDouble;
  c.copy_(at::baddbmm(c.to(wide), a.to(wide), b.to(wide), beta, alpha));
}

}  // namespace loom::glue
