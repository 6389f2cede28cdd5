// Pools of memory in stream order. cudaMallocAsync() takes what cudaMalloc() takes, and what is freed is
// given back at once: a pool keeps nothing, so its settings are kept without effect, and it has no figures.
#pragma once

#include <string.h>

#include "loom_cuda/runtime_api.h"

enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic = 2,
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrReservedMemHigh = 6,
  cudaMemPoolAttrUsedMemCurrent = 7,
  cudaMemPoolAttrUsedMemHigh = 8
};
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid = 0, cudaMemAllocationTypePinned = 1 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0, cudaMemHandleTypePosixFileDescriptor = 1 };
enum cudaMemAccessFlags {
  cudaMemAccessFlagsProtNone = 0,
  cudaMemAccessFlagsProtRead = 1,
  cudaMemAccessFlagsProtReadWrite = 3
};
struct cudaMemPoolProps {
  enum cudaMemAllocationType allocType;
  enum cudaMemAllocationHandleType handleTypes;
  struct cudaMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct cudaMemAccessDesc {
  struct cudaMemLocation location;
  enum cudaMemAccessFlags flags;
};
struct CUmemPoolHandle_st {
  int device;
  unsigned long long settings[cudaMemPoolAttrReleaseThreshold + 1];  // by attribute
};

namespace loom_cuda {
inline CUmemPoolHandle_st* default_pool(int device) {
  constexpr int kMostDevices = 64;
  static CUmemPoolHandle_st pools[kMostDevices];
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || device < 0 || device >= count || device >= kMostDevices)
    return nullptr;
  pools[device].device = device;
  return &pools[device];
}
}  // namespace loom_cuda

static inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = loom_cuda::default_pool(device);
  return *pool != nullptr ? cudaSuccess : cudaErrorInvalidDevice;
}
static inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}
static inline cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return pool != nullptr && loom_cuda::default_pool(device) != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr) return cudaErrorInvalidValue;
  if (properties->handleTypes != cudaMemHandleTypeNone) return cudaErrorNotSupported;
  *pool = new CUmemPoolHandle_st{properties->location.id, {}};
  return cudaSuccess;
}
static inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (pool == nullptr || pool == loom_cuda::default_pool(pool->device)) return cudaErrorInvalidValue;
  delete pool;
  return cudaSuccess;
}
// The release threshold is a 64-bit number, the other settings are ints; figures of use are not there.
static inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                  void* value) {
  if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
  if (attribute > cudaMemPoolAttrReleaseThreshold) return cudaErrorNotSupported;
  const bool is_wide = attribute == cudaMemPoolAttrReleaseThreshold;
  memcpy(&pool->settings[attribute], value, is_wide ? sizeof(unsigned long long) : sizeof(int));
  return cudaSuccess;
}
static inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                  void* value) {
  if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
  if (attribute > cudaMemPoolAttrReleaseThreshold) return cudaErrorNotSupported;
  const bool is_wide = attribute == cudaMemPoolAttrReleaseThreshold;
  memcpy(value, &pool->settings[attribute], is_wide ? sizeof(unsigned long long) : sizeof(int));
  return cudaSuccess;
}
static inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return pool != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses,
                                               size_t) {
  return pool != nullptr && accesses != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                               cudaMemLocation* location) {
  if (flags == nullptr || pool == nullptr || location == nullptr) return cudaErrorInvalidValue;
  *flags = cudaMemAccessFlagsProtReadWrite;
  return cudaSuccess;
}
static inline cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                                   cudaMemAllocationType type) {
  if (pool == nullptr || location == nullptr) return cudaErrorInvalidValue;
  if (location->type != cudaMemLocationTypeDevice || type != cudaMemAllocationTypePinned)
    return cudaErrorNotSupported;
  return cudaDeviceGetDefaultMemPool(pool, location->id);
}
static inline cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                            cudaMemAllocationType type) {
  return cudaMemGetDefaultMemPool(pool, location, type);
}
static inline cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool,
                                                  cudaStream_t stream) {
  return pool != nullptr ? cudaMallocAsync(address, bytes, stream) : cudaErrorInvalidValue;
}
template <typename T>
static inline cudaError_t cudaMallocFromPoolAsync(T** address, size_t bytes, cudaMemPool_t pool,
                                                  cudaStream_t stream) {
  return cudaMallocFromPoolAsync((void**)address, bytes, pool, stream);
}
template <typename T>
static inline cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaMemPool_t pool,
                                          cudaStream_t stream) {
  return cudaMallocFromPoolAsync((void**)address, bytes, pool, stream);
}
