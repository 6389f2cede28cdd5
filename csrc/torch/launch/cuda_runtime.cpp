// The functions of CUDA's runtime library, on the devices: what an extension calls beside PyTorch.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/PyInterpreter.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "torch/dispatch/device_assert.h"
#include "torch/launch/runtime_calls.h"

namespace loom::glue {

namespace {

bool is_device(int device) { return device >= 0 && device < devices().device_count(); }

const runtime::Device& current() { return devices().device(runtime::current_device()); }

// Whether a copy needs no stream: neither side is on a device.
bool is_on_host(const void* address) {
  return devices().locate(address).kind != driver::AddressKind::kDevice;
}

void copy_bytes(runtime::StreamRef stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (is_on_host(to) && is_on_host(from)) {
    runtime::synchronize_stream(stream);
    std::memmove(to, from, bytes);
    return;
  }
  runtime::copy(stream, to, from, bytes);
}

int clock_khz(const runtime::Chip& chip) { return static_cast<int>(chip.clock_mhz * 1000); }

constexpr size_t kReserved = 1024;  // shared memory of a block that CUDA keeps for itself

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;
using loom::runtime::StreamRef;

cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(take_last_error()); }
cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(peek_last_error()); }
const char* cudaGetErrorString(cudaError_t error) { return error_text(error); }
const char* cudaGetErrorName(cudaError_t error) { return error_name(error); }

// --- devices ---

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = loom::runtime::current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return refuse(cudaErrorInvalidDevice);
  loom::runtime::set_current_device(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return numbered([] { loom::runtime::synchronize_device(current().logical); });
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return refuse(cudaErrorInvalidDevice);
  const loom::runtime::Device& own = devices().device(device);
  const loom::runtime::Chip& chip = own.chip();
  *properties = {};
  std::strncpy(properties->name, chip.description.c_str(), sizeof(properties->name) - 1);
  properties->totalGlobalMem = static_cast<size_t>(own.config().memory_bytes);
  properties->sharedMemPerBlock = kUsualSharedBytes;
  properties->sharedMemPerBlockOptin = max_shared_bytes(device);
  properties->sharedMemPerMultiprocessor = max_shared_bytes(device) + kReserved;
  properties->reservedSharedMemPerBlock = kReserved;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = loom::cuda_cpp::kWarp;
  properties->maxThreadsPerBlock = loom::cuda_cpp::kMaxThreads;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->clockRate = clock_khz(chip);
  properties->totalConstMem = 65536;
  properties->major = chip.capability_major;
  properties->minor = chip.capability_minor;
  properties->textureAlignment = 512;
  properties->multiProcessorCount = chip.num_cores;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->unifiedAddressing = properties->concurrentKernels = properties->cooperativeLaunch = 1;
  properties->canMapHostMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  if (const cudaError_t error = cudaGetDeviceProperties(&all, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = all.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrMaxBlockDimZ:
      *value = all.maxThreadsDim[attribute - cudaDevAttrMaxBlockDimX];
      break;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = all.maxGridSize[attribute - cudaDevAttrMaxGridDimX];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(all.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(all.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(all.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = static_cast<int>(all.reservedSharedMemPerBlock);
      break;
    case cudaDevAttrTotalConstantMemory:
      *value = static_cast<int>(all.totalConstMem);
      break;
    case cudaDevAttrWarpSize:
      *value = all.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = all.regsPerBlock;
      break;
    case cudaDevAttrClockRate:
      *value = all.clockRate;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = all.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = all.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = all.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = all.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = all.minor;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrL2CacheSize:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 0;
      break;
    default:
      return refuse(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = loom::runtime::kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = loom::cuda_cpp::Fiber::kStackBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return refuse(cudaErrorInvalidDevice);
  *can = device != peer && devices().device(device).driver().info().peer_access;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// --- memory ---

cudaError_t cudaMalloc(void** address, size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return numbered([&] {
    const loom::runtime::Device& own = current();
    *address = own.driver().allocate(own.driver_index, bytes);
    note_allocation(*address, bytes);
  });
}
cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  return numbered([&] {
    const loom::runtime::Place place = devices().locate(address);
    TORCH_CHECK(place.device != nullptr && forget_allocation(address),
                "CUDA error: invalid argument: ", address, " is not what cudaMalloc() returned");
    place.device->synchronize();
    place.device->driver().deallocate(address);
  });
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) { return cudaMalloc(address, bytes); }
cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return numbered([&] { *address = current().driver().allocate_host(bytes); });
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) { return cudaMallocHost(address, bytes); }
cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  return numbered([&] {
    current().synchronize();
    current().driver().deallocate(address);
  });
}
// Where the host cannot reach the devices' memory there is no memory for both.
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  *address = nullptr;
  if (!current().driver().info().host_addressable) return refuse(cudaErrorNotSupported);
  return cudaMalloc(address, bytes);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t handle) {
  return on_stream(handle, [&](StreamRef stream) { copy_bytes(stream, to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return on_stream(nullptr, [&](StreamRef stream) {
    copy_bytes(stream, to, from, bytes);
    loom::runtime::synchronize_stream(stream);
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t handle) {
  return on_stream(handle, [&](StreamRef stream) {
    for (size_t row = 0; row < height; ++row) {
      copy_bytes(stream, static_cast<char*>(to) + row * to_pitch,
                 static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t handle) {
  if (bytes == 0) return cudaSuccess;
  return on_stream(handle, [&](StreamRef stream) {
    loom::runtime::fill(stream, address, static_cast<uint8_t>(value), bytes);
  });
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return numbered([&] {
    const loom::driver::MemoryInfo memory = current().allocator->memory_info();
    *free = static_cast<size_t>(memory.free_bytes);
    *total = static_cast<size_t>(memory.total_bytes);
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const loom::runtime::Place place = devices().locate(address);
  void* const own = const_cast<void*>(address);
  switch (place.kind) {
    case loom::driver::AddressKind::kDevice:
      *attributes = {cudaMemoryTypeDevice, place.device->logical, own, nullptr};
      break;
    case loom::driver::AddressKind::kPinnedHost:
      *attributes = {cudaMemoryTypeHost, current().logical, own, own};
      break;
    default:
      *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, own};
  }
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchBatchAsync(void**, size_t*, size_t, cudaMemLocation*, size_t*, size_t,
                                      unsigned long long, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }

// --- streams ---

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  return numbered([&] {
    loom::runtime::Device& own = devices().device(loom::runtime::current_device());
    *stream = static_cast<cudaStream_t>(handle_of({own.logical, own.new_stream(priority)}));
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
// It stays in the pool that it came from.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return stream_of(handle).device < 0 ? refuse(cudaErrorInvalidResourceHandle) : cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(handle, [](StreamRef stream) { loom::runtime::synchronize_stream(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  bool is_finished = false;
  const cudaError_t error =
      on_stream(handle, [&](StreamRef stream) { is_finished = loom::runtime::query_stream(stream); });
  return error != cudaSuccess || is_finished ? error : refuse(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return on_stream(handle, [&](StreamRef stream) {
    loom::runtime::wait_event(stream, reinterpret_cast<loom::driver::Event>(event));
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return on_stream(handle,
                   [&](StreamRef stream) { *priority = loom::runtime::Runtime::priority_of(stream.id); });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return on_stream(
      handle, [&](StreamRef stream) { *flags = stream.id == 0 ? cudaStreamDefault : cudaStreamNonBlocking; });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return on_stream(handle, [&](StreamRef stream) {
    *status =
        loom::runtime::is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  });
}
cudaError_t loom_cuda_capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                   unsigned long long* id) {
  if (id != nullptr) *id = 1;
  return cudaStreamIsCapturing(handle, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  struct Call {
    cudaHostFn_t function;
    void* data;
  };
  return on_stream(handle, [&](StreamRef stream) {
    const loom::driver::Kernel kernel{"host function",
                                      [](void* context, loom::driver::Stream) {
                                        const Call& call = *static_cast<const Call*>(context);
                                        call.function(call.data);
                                      },
                                      [](void* context) { delete static_cast<Call*>(context); },
                                      new Call{function, data}};
    loom::runtime::submit(stream, kernel);
  });
}

// --- events ---

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return numbered([&] {
    devices();
    *event = reinterpret_cast<cudaEvent_t>(loom::runtime::create_event(
        loom::runtime::current_device(), {.timing = (flags & cudaEventDisableTiming) == 0}));
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return numbered([&] { loom::runtime::destroy_event(reinterpret_cast<loom::driver::Event>(event)); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return on_stream(handle, [&](StreamRef stream) {
    loom::runtime::record_event(reinterpret_cast<loom::driver::Event>(event), stream);
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return numbered([&] { loom::runtime::synchronize_event(reinterpret_cast<loom::driver::Event>(event)); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool is_finished = false;
  const cudaError_t error = numbered(
      [&] { is_finished = loom::runtime::query_event(reinterpret_cast<loom::driver::Event>(event)); });
  return error != cudaSuccess || is_finished ? error : refuse(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return numbered([&] {
    *milliseconds = static_cast<float>(
        static_cast<double>(loom::runtime::elapsed_ns(reinterpret_cast<loom::driver::Event>(start),
                                                      reinterpret_cast<loom::driver::Event>(end))) /
        1e6);
  });
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return refuse(cudaErrorNotSupported);
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return refuse(cudaErrorNotSupported);
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return refuse(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return refuse(cudaErrorNotSupported);
}
cudaError_t cudaIpcCloseMemHandle(void*) { return refuse(cudaErrorNotSupported); }
cudaError_t cudaUserObjectCreate(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned) {
  return refuse(cudaErrorNotSupported);
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) { return refuse(cudaErrorNotSupported); }
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return refuse(cudaErrorNotSupported);
}

// --- functions of the device ---

int loom_cuda_check_function_attribute(cudaFuncAttribute attribute, int value) {
  devices();
  const size_t most = max_shared_bytes(loom::runtime::current_device());
  const bool is_too_large = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
                            (value < 0 || static_cast<size_t>(value) > most);
  if (is_too_large) return set_last_error(cudaErrorInvalidValue);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    allow_shared_bytes(static_cast<size_t>(value));
  return cudaSuccess;
}
void loom_cuda_function_attributes(cudaFuncAttributes* attributes) {
  *attributes = {};
  attributes->maxThreadsPerBlock = loom::cuda_cpp::kMaxThreads;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(kUsualSharedBytes);
  attributes->ptxVersion = attributes->binaryVersion =
      10 * current().chip().capability_major + current().chip().capability_minor;
}
// As threads and shared memory allow; what registers would allow is not known.
int loom_cuda_blocks_per_core(int* blocks, int block_threads, size_t shared_bytes) {
  cudaDeviceProp all;
  if (const cudaError_t error = cudaGetDeviceProperties(&all, loom::runtime::current_device());
      error != cudaSuccess)
    return error;
  *blocks = 0;
  if (block_threads <= 0) return refuse(cudaErrorInvalidValue);
  if (block_threads > all.maxThreadsPerBlock || shared_bytes > all.sharedMemPerBlockOptin) return cudaSuccess;
  const int warps = (block_threads + all.warpSize - 1) / all.warpSize;
  const int by_threads = all.maxThreadsPerMultiProcessor / all.warpSize / warps;
  const auto by_memory = static_cast<int>(all.sharedMemPerMultiprocessor / (shared_bytes + kReserved));
  *blocks = std::min({by_threads, by_memory, all.maxBlocksPerMultiProcessor});
  return cudaSuccess;
}
