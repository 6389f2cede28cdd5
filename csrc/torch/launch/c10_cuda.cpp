// What libc10_cuda and libtorch_cuda would export, on the devices: PyTorch's headers declare it, extensions
// call it. Only a device whose name is cuda has tensors that such extensions take.
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDADeviceAssertionHost.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>

#include "torch/core/device.h"
#include "torch/core/torch_version.h"
#include "torch/launch/launch.h"
#include "torch/memory/allocator.h"

namespace loom::glue {

namespace {

int device_or_current(c10::DeviceIndex device) {
  devices();
  if (device == -1) return runtime::current_device();
  check_device_index(device);
  return device;
}

c10::cuda::CUDAStream stream_of_id(int device, int64_t id) {
  return c10::cuda::CUDAStream(c10::Stream(
      c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)), id));
}

runtime::StreamRef reference(const c10::cuda::CUDAStream& stream) {
  return {stream.device_index(), stream.id()};
}

[[noreturn]] void refuse_library(const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name,
      ": NVIDIA's libraries are not there for torch-loom's devices. Call torch's functions "
      "(at::mm, at::linalg_solve …), which compute the same on them.");
}

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;

namespace c10::cuda {

// --- streams ---

bool CUDAStream::query() const {
  return translated([&] { return loom::runtime::query_stream(reference(*this)); });
}
void CUDAStream::synchronize() const {
  translated([&] { loom::runtime::synchronize_stream(reference(*this)); });
}
cudaStream_t CUDAStream::stream() const { return static_cast<cudaStream_t>(handle_of(reference(*this))); }

CUDAStream getStreamFromPool(const int priority, DeviceIndex device) {
  const int index = device_or_current(device);
  return stream_of_id(index, translated([&] { return devices().device(index).new_stream(priority); }));
}
CUDAStream getStreamFromPool(const bool isHighPriority, DeviceIndex device) {
  return getStreamFromPool(isHighPriority ? loom::runtime::kHighestPriority : 0, device);
}
CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex device) {
  const loom::runtime::StreamRef found = stream_of(stream);
  TORCH_CHECK_VALUE(found.device >= 0 && found.device == device_or_current(device),
                    "getStreamFromExternal: ", stream, " is no stream of device ", static_cast<int>(device));
  return stream_of_id(found.device, found.id);
}
CUDAStream getDefaultCUDAStream(DeviceIndex device) { return stream_of_id(device_or_current(device), 0); }
CUDAStream getCurrentCUDAStream(DeviceIndex device) {
  const int index = device_or_current(device);
  return stream_of_id(index, loom::runtime::current_stream(index));
}
void setCurrentCUDAStream(CUDAStream stream) {
  loom::runtime::set_current_stream(device_or_current(stream.device_index()), stream.id());
}
std::ostream& operator<<(std::ostream& out, const CUDAStream& stream) { return out << stream.unwrap(); }

// --- devices ---

DeviceIndex device_count() noexcept { return static_cast<DeviceIndex>(loom::glue::device_count()); }
DeviceIndex device_count_ensure_non_zero() {
  TORCH_CHECK(device_count() > 0, "No CUDA GPUs are available");
  return device_count();
}
DeviceIndex current_device() { return static_cast<DeviceIndex>(device_or_current(-1)); }
void set_device(DeviceIndex device, const bool) {
  loom::runtime::set_current_device(device_or_current(device));
}
void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
void warn_or_error_on_sync() {}
cudaError_t GetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
cudaError_t GetDevice(DeviceIndex* device) {
  *device = static_cast<DeviceIndex>(loom::runtime::current_device());
  return cudaSuccess;
}
cudaError_t SetDevice(DeviceIndex device, const bool) { return cudaSetDevice(device); }
cudaError_t MaybeSetDevice(DeviceIndex device) { return cudaSetDevice(device); }
DeviceIndex ExchangeDevice(DeviceIndex device) {
  const auto previous = static_cast<DeviceIndex>(loom::runtime::current_device());
  if (device != previous) C10_CUDA_CHECK(cudaSetDevice(device));
  return previous;
}
DeviceIndex MaybeExchangeDevice(DeviceIndex device) { return device < 0 ? device : ExchangeDevice(device); }
void SetTargetDevice() {}
bool hasPrimaryContext(DeviceIndex device) { return device_has_context(device); }
std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext() {
  for (DeviceIndex device = 0; device < device_count(); ++device) {
    if (device_has_context(device)) return device;
  }
  return std::nullopt;
}

// --- errors ---

#if LOOM_HAS_ERROR_LOG
CUDAErrorLogCapture::CUDAErrorLogCapture() noexcept = default;
std::string CUDAErrorLogCapture::get_error_log_suffix() noexcept { return {}; }
#endif
void c10_cuda_check_implementation(const int32_t error, const char* file, const char* function,
                                   const uint32_t line, const bool LOOM_ERROR_LOG) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  // With its own type and words.
  if (const std::exception_ptr cause = take_error_cause(error)) std::rethrow_exception(cause);
  throw c10::AcceleratorError({function, file, line}, error, std::string("CUDA error: ") + error_text(error));
}
std::string get_cuda_error_help(cudaError_t) noexcept { return {}; }
const char* get_cuda_check_suffix() noexcept { return ""; }
const char* get_cuda_async_error_suffix(cudaError_t) noexcept { return ""; }
std::mutex* getFreeMutex() {
  static auto* mutex = new std::mutex;
  return mutex;
}

// Assertions by this means are not kept: assert() itself fails the kernel, and says more.
CUDAKernelLaunchRegistry::CUDAKernelLaunchRegistry() = default;
uint32_t CUDAKernelLaunchRegistry::insert(const char*, const char*, const uint32_t, const char*,
                                          const int32_t) {
  return 0;
}
DeviceAssertionsData* CUDAKernelLaunchRegistry::get_uvm_assertions_ptr_for_current_device() {
  return nullptr;
}
bool CUDAKernelLaunchRegistry::has_failed() const { return false; }
CUDAKernelLaunchRegistry& CUDAKernelLaunchRegistry::get_singleton_ref() {
  static auto* registry = new CUDAKernelLaunchRegistry;
  return *registry;
}
std::string c10_retrieve_device_side_assertion_info() { return {}; }

}  // namespace c10::cuda

namespace at::cuda {

cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
  // Each device's, for as long as the process lives.
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<int, cudaDeviceProp>;
  const int index = device_or_current(device);
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto [place, is_new] = known->try_emplace(index);
  if (is_new) C10_CUDA_CHECK(cudaGetDeviceProperties(&place->second, index));
  return &place->second;
}
cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(c10::cuda::current_device()); }
int warp_size() { return getCurrentDeviceProperties()->warpSize; }
bool canDeviceAccessPeer(c10::DeviceIndex device, c10::DeviceIndex peer) {
  int can = 0;
  C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
  return can != 0;
}
c10::Allocator* getCUDADeviceAllocator() { return device_allocator(); }

cublasLtHandle_t getCurrentCUDABlasLtHandle() {
  return reinterpret_cast<cublasLtHandle_t>(getCurrentCUDABlasHandle(true));
}
cusparseHandle_t getCurrentCUDASparseHandle() { refuse_library("cusparse"); }
cusolverDnHandle_t getCurrentCUDASolverDnHandle() { refuse_library("cusolver"); }

}  // namespace at::cuda
