// Functions of CUDA's runtime library that take kernels and variables, and forms with fewer arguments.
#pragma once

#ifndef LOOM_CUDA_DEVICE_CODE
#include "loom_cuda/runtime_api.h"
#endif
#include "loom_cuda/graphs.h"
#include "loom_cuda/kernel_addresses.h"
#include "loom_cuda/memory_pools.h"
#include "loom_cuda/pitched_memory.h"
#include "loom_cuda/stream_attributes.h"
#include "loom_cuda/texture_types.h"

// Addresses of pointers to const, too, as nvcc takes them: hence casts that drop it.
template <typename T>
static inline cudaError_t cudaMalloc(T** address, size_t bytes) {
  return ::cudaMalloc((void**)address, bytes);
}
template <typename T>
static inline cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaStream_t stream) {
  return ::cudaMallocAsync((void**)address, bytes, stream);
}
template <typename T>
static inline cudaError_t cudaMallocHost(T** address, size_t bytes, unsigned = 0) {
  return ::cudaMallocHost((void**)address, bytes);
}
template <typename T>
static inline cudaError_t cudaHostAlloc(T** address, size_t bytes, unsigned flags) {
  return ::cudaHostAlloc((void**)address, bytes, flags);
}
template <typename T>
static inline cudaError_t cudaMallocManaged(T** address, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return ::cudaMallocManaged((void**)address, bytes, flags);
}
// Kernels reach all memory of the host, at its own address.
template <typename T>
static inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
  if (device == nullptr || host == nullptr) return cudaErrorInvalidValue;
  *device = static_cast<T*>(host);
  return cudaSuccess;
}
static inline cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  return address == nullptr || bytes == 0 ? cudaErrorInvalidValue : cudaSuccess;
}
static inline cudaError_t cudaHostUnregister(void* address) {
  return address == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return ::cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
static inline cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes) {
  return ::cudaMemsetAsync(address, value, bytes, nullptr);
}
static inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                       size_t width, size_t height, cudaMemcpyKind kind) {
  return loom_cuda::finish(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr));
}
static inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                            size_t width, size_t height, cudaMemcpyKind kind) {
  return ::cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
static inline cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                                         size_t bytes) {
  return loom_cuda::finish(cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr));
}
enum cudaMemcpySrcAccessOrder {
  cudaMemcpySrcAccessOrderInvalid = 0,
  cudaMemcpySrcAccessOrderStream = 1,
  cudaMemcpySrcAccessOrderDuringApiCall = 2,
  cudaMemcpySrcAccessOrderAny = 3
};
struct cudaMemcpyAttributes {
  cudaMemcpySrcAccessOrder srcAccessOrder;
  cudaMemLocation srcLocHint, dstLocHint;
  unsigned flags;
};
// One copy after another, in the order of the stream, which is what each attribute allows at least.
static inline cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                                               size_t count, cudaMemcpyAttributes* attributes,
                                               size_t* first_of, size_t num_attributes, cudaStream_t stream) {
  const bool is_whole = to != nullptr && from != nullptr && bytes != nullptr && count != 0 &&
                        attributes != nullptr && first_of != nullptr && num_attributes != 0 &&
                        num_attributes <= count && first_of[0] == 0;
  if (!is_whole || stream == nullptr) return cudaErrorInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t error = cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
// The driver's functions are a header's, which have no names at run time.
static inline cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                                  cudaDriverEntryPointQueryResult* status = nullptr) {
  if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
  *function = nullptr;
  if (status == nullptr) return cudaErrorSymbolNotFound;
  *status = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
static inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status = nullptr) {
  return cudaGetDriverEntryPoint(symbol, function, flags, status);
}

// By the number of a device, as before CUDA 13; -1 is the host.
static inline cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, int device,
                                               cudaStream_t stream = nullptr) {
  const auto type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  return ::cudaMemPrefetchAsync(address, bytes, cudaMemLocation{type, device}, 0, stream);
}
static inline cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice,
                                        int device) {
  return ::cudaMemAdvise(address, bytes, advice, cudaMemLocation{cudaMemLocationTypeDevice, device});
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
  return ::cudaStreamWaitEvent(stream, event, 0);
}
template <typename T>
static inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, T* address, size_t bytes = 0,
                                                   unsigned flags = cudaMemAttachSingle) {
  return ::cudaStreamAttachMemAsync(stream, static_cast<void*>(address), bytes, flags);
}
static inline cudaError_t cudaEventRecord(cudaEvent_t event) { return ::cudaEventRecord(event, nullptr); }
static inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}
namespace loom_cuda {
struct StreamCallback {
  cudaStreamCallback_t function;
  cudaStream_t stream;
  void* data;
};
}  // namespace loom_cuda
static inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                                void* data, unsigned) {
  auto* const given = new loom_cuda::StreamCallback{function, stream, data};
  const auto call = [](void* at) {
    auto* const one = static_cast<loom_cuda::StreamCallback*>(at);
    one->function(one->stream, cudaSuccess, one->data);
    delete one;
  };
  const cudaError_t error = cudaLaunchHostFunc(stream, call, given);
  if (error != cudaSuccess) delete given;
  return error;
}
static inline cudaError_t cudaDeviceEnablePeerAccess(int peer) {
  return ::cudaDeviceEnablePeerAccess(peer, 0);
}
static inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                   unsigned long long* id = nullptr, void* = nullptr,
                                                   void* = nullptr, void* = nullptr, void* = nullptr) {
  return loom_cuda_capture_info(stream, status, id);
}

// Variables of the device are variables of the process: what is in flight may use them.
template <typename T>
static inline cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes,
                                             size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return error;
  void* const to = reinterpret_cast<char*>(const_cast<std::remove_cv_t<T>*>(&symbol)) + offset;
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
template <typename T>
static inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes,
                                                  size_t offset = 0,
                                                  cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                                  cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <typename T>
static inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                               cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return error;
  return cudaMemcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, cudaMemcpyDefault);
}
template <typename T>
static inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes,
                                                    size_t offset = 0,
                                                    cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                                    cudaStream_t = nullptr) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
template <typename T>
static inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = const_cast<std::remove_cv_t<T>*>(&symbol);
  return cudaSuccess;
}
template <typename T>
static inline cudaError_t cudaGetSymbolSize(size_t* bytes, const T& symbol) {
  *bytes = sizeof(symbol);
  return cudaSuccess;
}

LOOM_CUDART int loom_cuda_check_function_attribute(enum cudaFuncAttribute attribute, int value);
LOOM_CUDART void loom_cuda_function_attributes(struct cudaFuncAttributes* attributes);
LOOM_CUDART int loom_cuda_blocks_per_core(int* blocks, int block_threads, size_t shared_bytes);
template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F*, cudaFuncAttribute attribute, int value) {
  return static_cast<cudaError_t>(loom_cuda_check_function_attribute(attribute, value));
}
template <typename F>
static inline cudaError_t cudaFuncSetCacheConfig(F*, cudaFuncCache) {
  return cudaSuccess;
}
template <typename F>
static inline cudaError_t cudaFuncSetSharedMemConfig(F*, cudaSharedMemConfig) {
  return cudaSuccess;
}
template <typename F>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F*) {
  loom_cuda_function_attributes(attributes);
  return cudaSuccess;
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int block_threads,
                                                                        size_t shared_bytes) {
  return static_cast<cudaError_t>(loom_cuda_blocks_per_core(blocks, block_threads, shared_bytes));
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F,
                                                                                 int block_threads,
                                                                                 size_t shared_bytes,
                                                                                 unsigned) {
  return static_cast<cudaError_t>(loom_cuda_blocks_per_core(blocks, block_threads, shared_bytes));
}
// What each of so many blocks of a core can have.
template <typename F>
static inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, F kernel, int blocks,
                                                                    int block_threads) {
  if (bytes == nullptr || blocks <= 0) return cudaErrorInvalidValue;
  cudaDeviceProp all;
  int device = 0, fit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&all, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, block_threads, 0);
  if (error != cudaSuccess) return error;
  if (fit < blocks) return cudaErrorInvalidValue;
  const size_t share = all.sharedMemPerMultiprocessor / blocks;
  const size_t own = share > all.reservedSharedMemPerBlock ? share - all.reservedSharedMemPerBlock : 0;
  *bytes = own < all.sharedMemPerBlockOptin ? own : all.sharedMemPerBlockOptin;
  return cudaSuccess;
}
template <typename F, typename S>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* least_grid, int* block, F,
                                                                         S shared_bytes, int limit = 0) {
  int device = 0, cores = 0, blocks = 0;
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = static_cast<cudaError_t>(loom_cuda_blocks_per_core(&blocks, *block, shared_bytes(*block)));
  *least_grid = cores * blocks;
  return error;
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* least_grid, int* block, F kernel,
                                                             size_t shared_bytes = 0, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
      least_grid, block, kernel, [shared_bytes](int) { return shared_bytes; }, limit);
}
template <typename F, typename S>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(int* least_grid, int* block,
                                                                                  F kernel, S shared_bytes,
                                                                                  int limit = 0,
                                                                                  unsigned = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(least_grid, block, kernel, shared_bytes, limit);
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(int* least_grid, int* block, F kernel,
                                                                      size_t shared_bytes = 0, int limit = 0,
                                                                      unsigned = 0) {
  return cudaOccupancyMaxPotentialBlockSize(least_grid, block, kernel, shared_bytes, limit);
}
// Neither has an effect here, so that both are as they come.
static inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  if (config == nullptr) return cudaErrorInvalidValue;
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
static inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  if (config == nullptr) return cudaErrorInvalidValue;
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}

#ifdef LOOM_CUDA_DEVICE_CODE
namespace loom_cuda {
template <typename... P, size_t... I>
static inline cudaError_t launch_by_pointers(void (*kernel)(P...), const Configuration& configuration,
                                             void** values, std::index_sequence<I...>) {
  return static_cast<cudaError_t>(launch(
      "kernel", "", [kernel](auto... value) { kernel(value...); }, configuration,
      *static_cast<std::remove_cv_t<std::remove_reference_t<P>>*>(values[I])...));
}
}  // namespace loom_cuda

template <typename... P>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** values,
                                           size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  return loom_cuda::launch_by_pointers(kernel, loom_cuda::Configuration(grid, block, shared_bytes, stream),
                                       values, std::index_sequence_for<P...>());
}
template <typename... P>
static inline cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                                      void** values, size_t shared_bytes = 0,
                                                      cudaStream_t stream = nullptr) {
  loom_cuda::Configuration configuration(grid, block, shared_bytes, stream);
  configuration.is_cooperative = true;
  return loom_cuda::launch_by_pointers(kernel, configuration, values, std::index_sequence_for<P...>());
}
namespace loom_cuda {
template <typename... P>
static inline void* kernel_address(void (*kernel)(P...)) {
  void* const address = reinterpret_cast<void*>(kernel);
  static constexpr size_t kParameterBytes[] = {sizeof(P)..., 0};
  const Launcher launcher = [](const void* own, const AddressedLaunch& launch) {
    Configuration configuration(launch.grid, launch.block, launch.shared_bytes, launch.stream);
    configuration.is_cooperative = launch.is_cooperative;
    const auto typed = reinterpret_cast<void (*)(P...)>(const_cast<void*>(own));
    return launch_by_pointers(typed, configuration, launch.values, std::index_sequence_for<P...>());
  };
  kernel_addresses().add(address, launcher, {kParameterBytes, sizeof...(P)});
  return address;
}
// A variable that has a kernel's name.
template <typename T, typename = std::enable_if_t<!std::is_function_v<T>>>
static inline void* kernel_address(T* pointer) {
  return const_cast<std::remove_cv_t<T>*>(pointer);
}
}  // namespace loom_cuda

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
namespace loom_cuda {
static inline cudaError_t read_attributes(const cudaLaunchConfig_t& config, bool* is_cooperative) {
  *is_cooperative = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& given = config.attrs[i];
    if (given.id == cudaLaunchAttributeCooperative) *is_cooperative = given.val.cooperative != 0;
    const auto& cluster = given.val.clusterDim;
    // There are no clusters of blocks; in other respects launches are in the order of their stream.
    if (given.id == cudaLaunchAttributeClusterDimension && cluster.x * cluster.y * cluster.z > 1)
      return cudaErrorNotSupported;
  }
  return cudaSuccess;
}
}  // namespace loom_cuda
template <typename... P, typename... Given>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                                             Given&&... given) {
  loom_cuda::Configuration configuration(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                         config->stream);
  const cudaError_t error = loom_cuda::read_attributes(*config, &configuration.is_cooperative);
  if (error != cudaSuccess) return error;
  return static_cast<cudaError_t>(loom_cuda::launch(
      "kernel", "", [kernel](auto... value) { kernel(value...); }, configuration,
      static_cast<P>(std::forward<Given>(given))...));
}
// By the kernel's address.
static inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                              void** values) {
  bool is_cooperative;
  const cudaError_t error = loom_cuda::read_attributes(*config, &is_cooperative);
  if (error != cudaSuccess) return error;
  return loom_cuda::kernel_addresses().launch(
      kernel,
      {config->gridDim, config->blockDim, values, config->dynamicSmemBytes, config->stream, is_cooperative});
}
// Blocks are in no clusters but their own.
template <typename F>
static inline cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, F, const cudaLaunchConfig_t*) {
  *size = 1;
  return cudaSuccess;
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, F kernel,
                                                         const cudaLaunchConfig_t* config) {
  const dim3 block = config->blockDim;
  int device = 0, cores = 0, blocks = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, static_cast<int>(block.x * block.y * block.z), config->dynamicSmemBytes);
  *clusters = cores * blocks;
  return error;
}
#endif
