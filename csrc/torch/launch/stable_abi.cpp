// What libtorch_cuda exports in PyTorch's stable C interface: streams, guards, memory and errors. Extensions
// that are built for many versions of PyTorch call these alone. PyTorch declares them where USE_CUDA is
// defined.
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <cstdlib>
#include <cstring>

#define LOOM_STABLE extern "C" __attribute__((visibility("default")))
#define LOOM_ANSWER(...) AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ __VA_ARGS__; })

namespace {

c10::cuda::CUDAStream stream_of(void* stream, int32_t device) {
  return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream),
                                          static_cast<c10::DeviceIndex>(device));
}

}  // namespace

// --- streams ---

LOOM_STABLE AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream){
    LOOM_ANSWER(*stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device))
                              .stream())} LOOM_STABLE AOTITorchError
    torch_set_current_cuda_stream(void* stream, int32_t device){
        LOOM_ANSWER(c10::cuda::setCurrentCUDAStream(stream_of(stream, device)))} LOOM_STABLE AOTITorchError
    torch_get_cuda_stream_from_pool(bool is_urgent, int32_t device, void** stream){
        LOOM_ANSWER(*stream = c10::cuda::getStreamFromPool(is_urgent, static_cast<c10::DeviceIndex>(device))
                                  .stream())} LOOM_STABLE AOTITorchError
    torch_cuda_stream_synchronize(void* stream, int32_t device){
        LOOM_ANSWER(stream_of(stream, device).synchronize())} LOOM_STABLE AOTITorchError
    torch_get_current_cuda_blas_handle(void** handle){
        LOOM_ANSWER(*handle = at::cuda::getCurrentCUDABlasHandle())}

// --- guards ---

LOOM_STABLE AOTITorchError aoti_torch_create_cuda_guard(int32_t device, c10::DeviceGuard** guard){
    LOOM_ANSWER(*guard = new c10::DeviceGuard(
                    c10::Device(c10::DeviceType::CUDA,
                                static_cast<c10::DeviceIndex>(device))))} LOOM_STABLE AOTITorchError
    aoti_torch_delete_cuda_guard(c10::DeviceGuard* guard){
        LOOM_ANSWER(delete guard)} LOOM_STABLE AOTITorchError
    aoti_torch_cuda_guard_set_index(c10::DeviceGuard* guard, int32_t device){
        LOOM_ANSWER(guard -> set_index(static_cast<c10::DeviceIndex>(device)))} LOOM_STABLE AOTITorchError
    aoti_torch_create_cuda_stream_guard(void* stream, int32_t device, c10::StreamGuard** guard){
        LOOM_ANSWER(*guard = new c10::StreamGuard(stream_of(stream, device)))} LOOM_STABLE AOTITorchError
    aoti_torch_delete_cuda_stream_guard(c10::StreamGuard* guard){LOOM_ANSWER(delete guard)}

// --- memory ---

LOOM_STABLE AOTITorchError aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t bytes, void** memory){
    LOOM_ANSWER(*memory = c10::cuda::CUDACachingAllocator::raw_alloc(bytes))} LOOM_STABLE AOTITorchError
    aoti_torch_cuda_caching_allocator_raw_delete(void* memory){
        LOOM_ANSWER(c10::cuda::CUDACachingAllocator::raw_delete(memory))}

// --- errors ---

// The text is the caller's, who frees it with the function below; null where there is no error.
LOOM_STABLE AOTITorchError torch_c10_cuda_check_msg(int32_t error, const char* file, const char* function,
                                                    uint32_t line, bool includes_assertions, char** text) {
  *text = nullptr;
  try {
    c10::cuda::c10_cuda_check_implementation(error, file, function, line, includes_assertions);
  } catch (const c10::Error& raised) {
    *text = strdup(raised.what_without_backtrace());
  } catch (const std::exception& raised) {
    *text = strdup(raised.what());
  }
  return AOTI_TORCH_SUCCESS;
}
LOOM_STABLE void torch_c10_cuda_free_error_msg(char* text) { std::free(text); }
