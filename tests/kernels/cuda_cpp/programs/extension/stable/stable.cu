// An extension by PyTorch's stable C interface alone.
#define USE_CUDA
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <stdexcept>

__global__ void scale(float* x, int n, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}

static void launch(torch::stable::Tensor& x, float by) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  const int n = static_cast<int>(x.numel());
  scale<<<(n + 63) / 64, 64, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<float*>(x.data_ptr()), n, by);
}

void twice(torch::stable::Tensor x) {
  CUDAGuardHandle guard = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_cuda_guard(x.get_device_index(), &guard));
  launch(x, 2);
  TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_guard_set_index(guard, x.get_device_index()));
  TORCH_ERROR_CODE_CHECK(aoti_torch_delete_cuda_guard(guard));
}

// On a stream of the pool, waited for; through memory of the allocator.
void thrice(torch::stable::Tensor x) {
  const int32_t device = x.get_device_index();
  void *pooled = nullptr, *before = nullptr, *now = nullptr, *memory = nullptr, *handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &before));
  TORCH_ERROR_CODE_CHECK(torch_cuda_stream_synchronize(before, device));
  TORCH_ERROR_CODE_CHECK(torch_get_cuda_stream_from_pool(true, device, &pooled));
  CUDAStreamGuardHandle guard = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_cuda_stream_guard(pooled, device, &guard));
  launch(x, 3);
  const size_t bytes = x.numel() * sizeof(float);
  TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_caching_allocator_raw_alloc(bytes, &memory));
  cudaMemcpyAsync(memory, x.data_ptr(), bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(pooled));
  cudaMemcpyAsync(x.data_ptr(), memory, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(pooled));
  TORCH_ERROR_CODE_CHECK(torch_cuda_stream_synchronize(pooled, device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_caching_allocator_raw_delete(memory));
  TORCH_ERROR_CODE_CHECK(torch_get_current_cuda_blas_handle(&handle));
  TORCH_ERROR_CODE_CHECK(aoti_torch_delete_cuda_stream_guard(guard));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &now));
  TORCH_ERROR_CODE_CHECK(torch_set_current_cuda_stream(before, device));
  if (now != before || pooled == before || handle == nullptr) throw std::runtime_error("streams or handle");
}

// The text of an error, which the caller frees.
void check(int64_t error) {
  char* text = nullptr;
  TORCH_ERROR_CODE_CHECK(torch_c10_cuda_check_msg(error, "stable.cu", "check", 1, false, &text));
  if (text == nullptr) return;
  const std::string kept = text;
  torch_c10_cuda_free_error_msg(text);
  throw std::runtime_error(kept);
}

STABLE_TORCH_LIBRARY(loom_stable, m) {
  m.def("twice(Tensor x) -> ()");
  m.def("thrice(Tensor x) -> ()");
  m.def("check(int error) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(loom_stable, CUDA, m) {
  m.impl("twice", TORCH_BOX(&twice));
  m.impl("thrice", TORCH_BOX(&thrice));
}
STABLE_TORCH_LIBRARY_IMPL(loom_stable, CompositeExplicitAutograd, m) { m.impl("check", TORCH_BOX(&check)); }
