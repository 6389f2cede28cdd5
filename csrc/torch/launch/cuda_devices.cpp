// The devices by CUDA's runtime library: properties, attributes, limits, what a kernel may use of them.
#include <cuda_runtime_api.h>
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "torch/launch/runtime_calls.h"

using namespace loom::glue;

namespace {

int clock_khz(const loom::runtime::Chip& chip) { return static_cast<int>(chip.clock_mhz * 1000); }

// Shared memory of a block that CUDA keeps for itself, on Ampere and later.
size_t reserved_bytes(const loom::runtime::Chip& chip) { return chip.capability_major >= 8 ? 1024 : 0; }

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
int blocks_per_core(const loom::runtime::Chip& chip) {
  switch (chip.capability_major * 10 + chip.capability_minor) {
    case 75:
    case 86:
    case 87:
      return 16;
    case 89:
    case 120:
    case 121:
      return 24;
    default:
      return 32;
  }
}

// Throughput of float32 over that of float64, in whole numbers: "Arithmetic Instructions", in the same guide.
int float_to_double_ratio(const loom::runtime::Chip& chip) {
  switch (chip.capability_major * 10 + chip.capability_minor) {
    case 35:
    case 37:
      return 3;
    case 60:
    case 70:
    case 80:
    case 90:
    case 100:
      return 2;
    case 61:
    case 75:
      return 32;
    default:
      return 64;
  }
}

// "Technical Specifications per Compute Capability", from 7.0 on; some of earlier cards are smaller.
void set_texture_sizes(cudaDeviceProp& all) {
  const auto set = [](auto& field, auto... sizes) {
    int place = 0;
    ((field[place++] = sizes), ...);
  };
  all.textureAlignment = all.surfaceAlignment = 512;
  all.texturePitchAlignment = 32;
  all.maxTexture1D = 131072;
  all.maxTexture1DMipmap = all.maxSurface1D = 32768;
  all.maxTexture1DLinear = 1 << 28;
  set(all.maxTexture2D, 131072, 65536);
  set(all.maxTexture2DMipmap, 32768, 32768);
  set(all.maxTexture2DLinear, 131072, 65000, 2097120);
  set(all.maxTexture2DGather, 32768, 32768);
  set(all.maxTexture3D, 16384, 16384, 16384);
  set(all.maxTexture3DAlt, 8192, 8192, 32768);
  all.maxTextureCubemap = all.maxSurfaceCubemap = 32768;
  set(all.maxTexture1DLayered, 32768, 2048);
  set(all.maxTexture2DLayered, 32768, 32768, 2048);
  set(all.maxTextureCubemapLayered, 32768, 2046);
  set(all.maxSurface2D, 131072, 65536);
  set(all.maxSurface3D, 16384, 16384, 16384);
  set(all.maxSurface1DLayered, 32768, 2048);
  set(all.maxSurface2DLayered, 32768, 32768, 2048);
  set(all.maxSurfaceCubemapLayered, 32768, 2046);
}

int known_or(int64_t size, int otherwise) { return size != 0 ? static_cast<int>(size) : otherwise; }

}  // namespace

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
  const int64_t shared = chip.sizes.shared_memory_per_core_bytes;
  properties->reservedSharedMemPerBlock = reserved_bytes(chip);
  properties->sharedMemPerMultiprocessor =
      shared != 0 ? static_cast<size_t>(shared) : max_shared_bytes(device) + reserved_bytes(chip);
  properties->regsPerBlock = properties->regsPerMultiprocessor =
      known_or(chip.sizes.registers_per_core, 65536);
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
  set_texture_sizes(*properties);
  properties->multiProcessorCount = chip.num_cores;
  properties->maxThreadsPerMultiProcessor = known_or(chip.sizes.max_threads_per_core, 2048);
  properties->maxBlocksPerMultiProcessor = blocks_per_core(chip);
  properties->l2CacheSize = static_cast<int>(chip.sizes.l2_cache_bytes);
  properties->memoryClockRate = static_cast<int>(chip.sizes.memory_clock_mhz * 1000);
  properties->memoryBusWidth = static_cast<int>(chip.sizes.memory_bus_bits);
  properties->unifiedAddressing = properties->concurrentKernels = properties->cooperativeLaunch = 1;
  properties->canMapHostMemory = properties->streamPrioritiesSupported = properties->deviceOverlap = 1;
  properties->asyncEngineCount = 3;  // as those of the A100 and the H100
  properties->managedMemory = properties->concurrentManagedAccess = own.driver().info().host_addressable;
  properties->memoryPoolsSupported = properties->ipcEventSupported = properties->hostRegisterSupported = 1;
  properties->canUseHostPointerForRegisteredMem = properties->computePreemptionSupported = 1;
  properties->globalL1CacheSupported = properties->localL1CacheSupported = 1;
  properties->singleToDoublePrecisionPerfRatio = float_to_double_ratio(chip);
  properties->multiGpuBoardGroupID = own.physical;
  properties->memPitch = 0x7FFFFFFF;
  properties->pciBusID = own.physical + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  if (const cudaError_t error = cudaGetDeviceProperties(&all, device); error != cudaSuccess) return error;
  switch (attribute) {
#define LOOM_CUDA_ATTRIBUTE(name, driver_name, number, field) \
  case cudaDevAttr##name:                                     \
    *value = static_cast<int>(all.field);                     \
    return cudaSuccess;
    LOOM_CUDA_DEVICE_ATTRIBUTES(LOOM_CUDA_ATTRIBUTE)
#undef LOOM_CUDA_ATTRIBUTE
  }
  return refuse(cudaErrorInvalidValue);
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
// Peers are reached alike, in whatever way.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device, int peer) {
  const bool is_known =
      attribute >= cudaDevP2PAttrPerformanceRank && attribute <= cudaDevP2PAttrCudaArrayAccessSupported;
  if (value == nullptr || !is_known) return refuse(cudaErrorInvalidValue);
  if (device == peer) return refuse(cudaErrorInvalidDevice);
  if (attribute != cudaDevP2PAttrPerformanceRank) return cudaDeviceCanAccessPeer(value, device, peer);
  *value = 0;
  return is_device(device) && is_device(peer) ? cudaSuccess : refuse(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  cudaDeviceProp all;
  if (const cudaError_t error = cudaGetDeviceProperties(&all, device); error != cudaSuccess) return error;
  if (id == nullptr || length <= 0) return refuse(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<size_t>(length), "%04x:%02x:%02x.0", all.pciDomainID, all.pciBusID,
                all.pciDeviceID);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  if (device == nullptr || id == nullptr) return refuse(cudaErrorInvalidValue);
  for (int i = 0; i < devices().device_count(); ++i) {
    char own[32];
    const cudaError_t error = cudaDeviceGetPCIBusId(own, sizeof(own), i);
    if (error != cudaSuccess) return error;
    // Of the domain, all may be left out.
    const char* const bus = std::strchr(own, ':') + 1;
    if (strcasecmp(id, own) == 0 || strcasecmp(id, bus) == 0) {
      *device = i;
      return cudaSuccess;
    }
  }
  return refuse(cudaErrorInvalidDevice);
}
// The first: all are alike, or as the program lists them.
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  if (device == nullptr || wanted == nullptr) return refuse(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return refuse(cudaErrorInvalidValue);
  *flags = 0;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return is_device(device) ? cudaSuccess : refuse(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

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
  const auto by_memory = static_cast<int>(all.sharedMemPerMultiprocessor /
                                          std::max<size_t>(shared_bytes + all.reservedSharedMemPerBlock, 1));
  *blocks = std::min({by_threads, by_memory, all.maxBlocksPerMultiProcessor});
  return cudaSuccess;
}
