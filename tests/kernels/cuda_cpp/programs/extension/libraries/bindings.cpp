#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/empty.h>
#include <cublas_v2.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <mutex>

template <typename T>
void* scale_kernel(bool twice);
void launch_draw(float* out, int n, at::PhiloxCudaState state, cudaStream_t stream);
void launch_too_large(float* out, at::PhiloxCudaState state);

void scale(at::Tensor x, bool twice) {
  float* data = x.data_ptr<float>();
  int n = static_cast<int>(x.numel());
  void* given[] = {&data, &n};
  AT_CUDA_CHECK(cudaLaunchKernel(scale_kernel<float>(twice), dim3((n + 31) / 32), dim3(32), given, 0,
                                 at::cuda::getCurrentCUDAStream()));
}
void launch_nothing() { AT_CUDA_CHECK(cudaLaunchKernel("no kernel", dim3(1), dim3(1), nullptr, 0, nullptr)); }

at::Tensor draw(int64_t n, std::optional<at::Generator> given) {
  auto* generator =
      at::get_generator_or_default<at::CUDAGeneratorImpl>(given, at::cuda::detail::getDefaultCUDAGenerator());
  at::PhiloxCudaState state;
  {
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    state = generator->philox_cuda_state(3);
  }
  auto out = at::empty({n}, at::dtype(at::kFloat).device(at::kCUDA));
  launch_draw(out.data_ptr<float>(), static_cast<int>(n), state, at::cuda::getCurrentCUDAStream());
  return out;
}

cudaDataType type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf       ? CUDA_R_16F
         : x.scalar_type() == at::kBFloat16 ? CUDA_R_16BF
         : x.scalar_type() == at::kChar     ? CUDA_R_8I
         : x.scalar_type() == at::kInt      ? CUDA_R_32I
                                               : CUDA_R_32F;
}
// alpha a b^T + beta c of matrices that are stored by rows, which cuBLAS takes for their transposes.
void gemm(at::Tensor a, at::Tensor b, at::Tensor c, double alpha, double beta) {
  const int batches = static_cast<int>(a.size(0)), m = static_cast<int>(a.size(1)),
            k = static_cast<int>(a.size(2));
  const int n = static_cast<int>(b.size(1)), leading = std::max(1, k);
  const float alpha_f = static_cast<float>(alpha), beta_f = static_cast<float>(beta);
  const int alpha_i = static_cast<int>(alpha), beta_i = static_cast<int>(beta);
  const bool is_whole = c.scalar_type() == at::kInt;
  const void* alpha_at = is_whole ? static_cast<const void*>(&alpha_i) : &alpha_f;
  const void* beta_at = is_whole ? static_cast<const void*>(&beta_i) : &beta_f;
  TORCH_CUDABLAS_CHECK(cublasGemmStridedBatchedEx(
      at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, alpha_at, b.data_ptr(),
      type_of(b), leading, b.stride(0), a.data_ptr(), type_of(a), leading, a.stride(0), beta_at, c.data_ptr(),
      type_of(c), n, c.stride(0), batches, is_whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT_TENSOR_OP));
}
// By an array of addresses in device memory.
void gemm_by_address(at::Tensor a, at::Tensor b, at::Tensor c, at::Tensor addresses) {
  const float one = 1, zero = 0;
  const int count = static_cast<int>(a.size(0)), n = static_cast<int>(a.size(1));
  auto* at = reinterpret_cast<float**>(addresses.data_ptr<int64_t>());
  TORCH_CUDABLAS_CHECK(cublasSgemmBatched(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n,
                                          n, n, &one, at, n, at + count, n, &zero, at + 2 * count, n, count));
}

// x <- y A, dot products and norms, with results on the host and on the device.
std::vector<double> vectors(at::Tensor a, at::Tensor x, at::Tensor y, at::Tensor on_device) {
  cublasHandle_t handle;
  TORCH_CUDABLAS_CHECK(cublasCreate(&handle));
  TORCH_CUDABLAS_CHECK(cublasSetStream(handle, at::cuda::getCurrentCUDAStream()));
  const int rows = static_cast<int>(a.size(0)), columns = static_cast<int>(a.size(1));
  const double one = 1, zero = 0, half = 0.5;
  TORCH_CUDABLAS_CHECK(cublasDgemv(handle, CUBLAS_OP_N, columns, rows, &one, a.data_ptr<double>(), columns,
                                   y.data_ptr<double>(), 1, &zero, x.data_ptr<double>(), 1));
  TORCH_CUDABLAS_CHECK(
      cublasDaxpy(handle, columns, &half, x.data_ptr<double>(), -1, x.data_ptr<double>(), 1));
  TORCH_CUDABLAS_CHECK(cublasDger(handle, columns, rows, &half, x.data_ptr<double>(), 1, y.data_ptr<double>(),
                                  1, a.data_ptr<double>(), columns));
  double dot, norm, sum;
  TORCH_CUDABLAS_CHECK(
      cublasDdot(handle, columns / 2, x.data_ptr<double>(), 2, x.data_ptr<double>(), 1, &dot));
  TORCH_CUDABLAS_CHECK(cublasDnrm2(handle, columns, x.data_ptr<double>(), 1, &norm));
  TORCH_CUDABLAS_CHECK(cublasDasum(handle, columns, x.data_ptr<double>(), 1, &sum));
  TORCH_CUDABLAS_CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  TORCH_CUDABLAS_CHECK(cublasDasum(handle, columns, x.data_ptr<double>(), 1, on_device.data_ptr<double>()));
  TORCH_CUDABLAS_CHECK(cublasDscal(handle, columns, on_device.data_ptr<double>(), x.data_ptr<double>(), 1));
  TORCH_CUDABLAS_CHECK(cublasDestroy(handle));
  return {dot, norm, sum};
}

int bad_gemm(at::Tensor a, int leading) {
  const float one = 1;
  float* at = a.data_ptr<float>();
  cublasHandle_t handle = leading < 0 ? nullptr : at::cuda::getCurrentCUDABlasHandle();
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, at, leading, at, 4, &one, at, 4);
}

// A launch that is refused, and whether the program takes its error.
int refused_launch(at::Tensor out, bool takes_error) {
  launch_too_large(out.data_ptr<float>(), {});
  launch_draw(out.data_ptr<float>(), 1, {}, nullptr);
  return takes_error ? cudaGetLastError() : 0;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("refused_launch", &refused_launch);
  m.def("scale", &scale);
  m.def("launch_nothing", &launch_nothing);
  m.def("draw", &draw);
  m.def("gemm", &gemm);
  m.def("gemm_by_address", &gemm_by_address);
  m.def("vectors", &vectors);
  m.def("bad_gemm", &bad_gemm);
}
