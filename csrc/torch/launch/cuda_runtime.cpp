// The functions of CUDA's runtime library, on the devices: what an extension calls beside PyTorch.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/PyInterpreter.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "torch/dispatch/device_assert.h"
#include "torch/launch/runtime_calls.h"

namespace loom::glue {

namespace {

// Whether a copy needs no stream: neither side is on a device.
bool is_on_host(const void* address) {
  return devices().locate(address).kind != driver::AddressKind::kDevice;
}

bool is_pageable(const void* address) {
  return devices().locate(address).kind == driver::AddressKind::kUnknown;
}

// Has the stream call `step`, and forget it when that was the last time: a graph calls it at each launch.
template <typename Step>
void submit_step(runtime::StreamRef stream, const char* name, Step step) {
  const driver::Kernel kernel{
      name, [](void* context, driver::Stream) { (*static_cast<const Step*>(context))(); },
      [](void* context) { delete static_cast<Step*>(context); }, new Step(std::move(step))};
  runtime::submit(stream, kernel);
}

void copy_bytes(runtime::StreamRef stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  // PyTorch's own copies of such memory are refused in a capture; CUDA's are not.
  if (runtime::is_captured(stream) && (is_pageable(to) || is_pageable(from))) {
    return submit_step(stream, "memcpy", [=] { std::memcpy(to, from, bytes); });
  }
  if (is_on_host(to) && is_on_host(from)) {
    runtime::synchronize_stream(stream);
    std::memmove(to, from, bytes);
    return;
  }
  runtime::copy(stream, to, from, bytes);
}

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;
using loom::runtime::StreamRef;

cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(take_last_error()); }
cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(peek_last_error()); }
const char* cudaGetErrorString(cudaError_t error) { return error_text(error); }
const char* cudaGetErrorName(cudaError_t error) { return error_name(error); }

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

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return numbered([&] {
    loom::runtime::Device& own = devices().device(loom::runtime::current_device());
    const StreamRef made{own.logical, own.new_stream(priority)};
    if ((flags & cudaStreamNonBlocking) == 0) note_blocking_stream(made);
    *stream = static_cast<cudaStream_t>(handle_of(made));
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
  return with_stream(handle,
                     [&](StreamRef stream) { *priority = loom::runtime::Runtime::priority_of(stream.id); });
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  if (device == nullptr) return refuse(cudaErrorInvalidValue);
  return with_stream(handle, [&](StreamRef stream) { *device = stream.device; });
}
// Unique among the streams of all devices.
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  if (id == nullptr) return refuse(cudaErrorInvalidValue);
  return with_stream(handle, [&](StreamRef stream) {
    *id = static_cast<unsigned long long>(stream.id) << 16 | static_cast<unsigned long long>(stream.device);
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return with_stream(handle, [&](StreamRef stream) {
    *flags = stream.id == 0 || is_blocking_stream(stream) ? cudaStreamDefault : cudaStreamNonBlocking;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return with_stream(handle, [&](StreamRef stream) {
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

cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return cudaSuccess; }

cudaError_t loom_cuda_fill(const cudaMemsetParams* fill, cudaStream_t handle) {
  const unsigned bytes = fill->elementSize;
  if ((bytes != 1 && bytes != 2 && bytes != 4) || (fill->height > 1 && fill->width * bytes > fill->pitch)) {
    return refuse(cudaErrorInvalidValue);
  }
  return on_stream(handle, [&](StreamRef stream) {
    submit_step(stream, "memset", [own = *fill] {
      for (size_t y = 0; y < own.height; ++y) {
        auto* at = static_cast<char*>(own.dst) + y * own.pitch;
        for (size_t x = 0; x < own.width; ++x, at += own.elementSize) {
          std::memcpy(at, &own.value, own.elementSize);
        }
      }
    });
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return on_stream(handle,
                   [&](StreamRef stream) { submit_step(stream, "host function", [=] { function(data); }); });
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
