// What programs ask of the device through cub.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "cub/common.h"
#include "cuda_runtime.h"

namespace cub {

static inline cudaError_t Debug(cudaError_t error, const char* file, int line) {
  if (error != cudaSuccess) {
    fprintf(stderr, "CUDA error %d [%s, %d]: %s\n", static_cast<int>(error), file, line,
            cudaGetErrorString(error));
  }
  return error;
}
#define CubDebug(e) ::cub::Debug(static_cast<cudaError_t>(e), __FILE__, __LINE__)
#define CubDebugExit(e)                                                         \
  do {                                                                          \
    if (::cub::Debug(static_cast<cudaError_t>(e), __FILE__, __LINE__)) exit(1); \
  } while (0)

static inline cudaError_t PtxVersion(int& version) { return version = CUB_PTX_ARCH, cudaSuccess; }
static inline cudaError_t SmVersion(int& version, int = 0) { return version = CUB_PTX_ARCH, cudaSuccess; }
static inline cudaError_t SyncStream(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
static inline int CurrentDevice() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}
static inline int DeviceCount() {
  int count = 0;
  cudaGetDeviceCount(&count);
  return count;
}

// Memory comes from the runtime's own cache: streams do not matter, since what is freed waits for them.
struct CachingDeviceAllocator {
  template <typename... A>
  explicit CachingDeviceAllocator(A&&...) {}
  template <typename T>
  cudaError_t DeviceAllocate(T** address, size_t bytes, cudaStream_t = nullptr) {
    return ::cudaMalloc(reinterpret_cast<void**>(address), bytes);
  }
  template <typename T>
  cudaError_t DeviceAllocate(int device, T** address, size_t bytes, cudaStream_t = nullptr) {
    int current = 0;
    cudaGetDevice(&current);
    cudaSetDevice(device);
    const cudaError_t error = DeviceAllocate(address, bytes);
    cudaSetDevice(current);
    return error;
  }
  cudaError_t DeviceFree(void* address) { return ::cudaFree(address); }
  cudaError_t DeviceFree(int, void* address) { return ::cudaFree(address); }
  cudaError_t FreeAllCached() { return cudaSuccess; }
  cudaError_t SetMaxCachedBytes(size_t) { return cudaSuccess; }
};

}  // namespace cub
