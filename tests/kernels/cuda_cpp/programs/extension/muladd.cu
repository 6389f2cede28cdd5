// Ops of a library, registered for CUDA, in the shape of PyTorch's example of custom operators; and calls of
// CUDA's runtime library, by macros as programs have them.
#include <ATen/Operators.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <torch/library.h>

#define CUDA_CHECK(call)                                                                 \
  do {                                                                                   \
    const cudaError_t error = (call);                                                    \
    TORCH_CHECK(error == cudaSuccess, cudaGetErrorName(error), ": ", cudaGetErrorString(error)); \
  } while (0)

namespace muladd {

__global__ void muladd_kernel(int n, const float* a, const float* b, float c, float* result) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) result[i] = a[i] * b[i] + c;
}

at::Tensor mymuladd(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK(a.sizes() == b.sizes());
  TORCH_INTERNAL_ASSERT(a.device().type() == at::DeviceType::CUDA);
  const at::Tensor a_ = a.contiguous(), b_ = b.contiguous();
  at::Tensor result = at::empty(a_.sizes(), a_.options());
  const int n = static_cast<int>(a_.numel());
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  muladd_kernel<<<(n + 255) / 256, 256, 0, stream>>>(n, a_.data_ptr<float>(), b_.data_ptr<float>(), c,
                                                     result.data_ptr<float>());
  return result;
}

// Takes memory, streams and events by the runtime's own functions.
at::Tensor roundtrip(const at::Tensor& a) {
  float *memory = nullptr, *pinned = nullptr;
  const size_t bytes = a.numel() * sizeof(float);
  CUDA_CHECK(cudaMalloc(&memory, bytes));
  CUDA_CHECK(cudaMallocHost(&pinned, bytes));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaEventRecord(begin, stream));
  CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream));
  const int n = static_cast<int>(a.numel());
  muladd_kernel<<<(n + 255) / 256, 256, 0, stream>>>(n, a.data_ptr<float>(), a.data_ptr<float>(), 1.0f, memory);
  CUDA_CHECK(cudaPeekAtLastError());
  CUDA_CHECK(cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaEventRecord(end, stream));
  CUDA_CHECK(cudaEventSynchronize(end));
  float milliseconds = -1;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  TORCH_CHECK(milliseconds > 0);
  at::Tensor result = at::empty(a.sizes(), a.options().device(at::kCPU));
  memcpy(result.data_ptr<float>(), pinned, bytes);
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  CUDA_CHECK(cudaStreamDestroy(stream));
  CUDA_CHECK(cudaFree(memory));
  CUDA_CHECK(cudaFreeHost(pinned));
  return result;
}

// What is wrong with a launch, by number and by PyTorch's macro.
int64_t bad_launch(const at::Tensor& a, bool checks) {
  muladd_kernel<<<1, 2048>>>(1, a.data_ptr<float>(), a.data_ptr<float>(), 1.0f, a.data_ptr<float>());
  if (checks) C10_CUDA_KERNEL_LAUNCH_CHECK();
  return cudaGetLastError();
}

int64_t facts(int64_t which) {
  const cudaDeviceProp* const properties = at::cuda::getCurrentDeviceProperties();
  int blocks = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, muladd_kernel, 256, 0));
  CUDA_CHECK(cudaFuncSetAttribute(muladd_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  void* const memory = c10::cuda::CUDACachingAllocator::raw_alloc(1024);
  c10::cuda::CUDACachingAllocator::raw_delete(memory);
  const int64_t all[] = {properties->multiProcessorCount, properties->major * 10 + properties->minor,
                         at::cuda::warp_size(), blocks};
  return all[which];
}

TORCH_LIBRARY(loom_test_muladd, m) {
  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("roundtrip(Tensor a) -> Tensor");
  m.def("bad_launch(Tensor a, bool checks) -> int");
  m.def("facts(int which) -> int");
}
TORCH_LIBRARY_IMPL(loom_test_muladd, CUDA, m) {
  m.impl("mymuladd", &mymuladd);
  m.impl("roundtrip", &roundtrip);
  m.impl("bad_launch", &bad_launch);
}
TORCH_LIBRARY_IMPL(loom_test_muladd, CompositeExplicitAutograd, m) { m.impl("facts", &facts); }

}  // namespace muladd
