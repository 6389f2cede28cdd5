// Part of CUDA's driver library, each function by one of the runtime library: devices, their primary
// contexts, memory, streams and events. Modules are not there: a program's kernels are launched by <<<>>>.
#pragma once

#include <string.h>

#include <vector>

#include "loom_cuda/device_attributes.h"
#include "loom_cuda/runtime_api.h"

#define CUDAAPI

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;  // of device n: n + 1
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
// The numbers are those of cudaError.
// clang-format off
#define LOOM_CUDA_DRIVER_RESULTS(X) \
  X(CUDA_SUCCESS, 0) \
  X(CUDA_ERROR_INVALID_VALUE, 1) \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2) \
  X(CUDA_ERROR_NOT_INITIALIZED, 3) \
  X(CUDA_ERROR_DEINITIALIZED, 4) \
  X(CUDA_ERROR_NO_DEVICE, 100) \
  X(CUDA_ERROR_INVALID_DEVICE, 101) \
  X(CUDA_ERROR_INVALID_IMAGE, 200) \
  X(CUDA_ERROR_INVALID_CONTEXT, 201) \
  X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, 224) \
  X(CUDA_ERROR_INVALID_HANDLE, 400) \
  X(CUDA_ERROR_NOT_FOUND, 500) \
  X(CUDA_ERROR_NOT_READY, 600) \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
  X(CUDA_ERROR_LAUNCH_FAILED, 719) \
  X(CUDA_ERROR_NOT_SUPPORTED, 801) \
  X(CUDA_ERROR_UNKNOWN, 999)
// clang-format on
typedef enum cudaError_enum {
#define LOOM_CUDA_RESULT(name, number) name = (number),
  LOOM_CUDA_DRIVER_RESULTS(LOOM_CUDA_RESULT)
#undef LOOM_CUDA_RESULT
} CUresult;
typedef enum CUdevice_attribute_enum {
#define LOOM_CUDA_ATTRIBUTE(name, driver_name, number, field) CU_DEVICE_ATTRIBUTE_##driver_name = (number),
  LOOM_CUDA_DEVICE_ATTRIBUTES(LOOM_CUDA_ATTRIBUTE)
#undef LOOM_CUDA_ATTRIBUTE
} CUdevice_attribute;
typedef enum CUexecAffinityType_enum {
  CU_EXEC_AFFINITY_TYPE_SM_COUNT = 0,
  CU_EXEC_AFFINITY_TYPE_MAX
} CUexecAffinityType;
typedef struct CUexecAffinitySmCount_st {
  unsigned int val;
} CUexecAffinitySmCount;
typedef struct CUexecAffinityParam_st {
  CUexecAffinityType type;
  union {
    CUexecAffinitySmCount smCount;
  } param;
} CUexecAffinityParam;
typedef struct CUctxCreateParams_st {
  CUexecAffinityParam* execAffinityParams;
  int numExecAffinityParams;
  struct CUctxCigParam_st* cigParams;
} CUctxCreateParams;
typedef enum CUcomputemode_enum {
  CU_COMPUTEMODE_DEFAULT = 0,
  CU_COMPUTEMODE_PROHIBITED = 2,
  CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
} CUcomputemode;
typedef enum CUctx_flags_enum {
  CU_CTX_SCHED_AUTO = 0x00,
  CU_CTX_SCHED_SPIN = 0x01,
  CU_CTX_SCHED_YIELD = 0x02,
  CU_CTX_SCHED_BLOCKING_SYNC = 0x04,
  CU_CTX_MAP_HOST = 0x08
} CUctx_flags;
typedef enum CUstream_flags_enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 } CUstream_flags;
typedef enum CUevent_flags_enum {
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_INTERPROCESS = 4
} CUevent_flags;

namespace loom_cuda {

// The result of a call of the runtime library, whose last error stays what it was.
template <typename Call>
static inline CUresult driver_result(Call call) {
  const cudaError_t before = cudaPeekAtLastError();
  const cudaError_t error = call();
  if (error != cudaSuccess && before == cudaSuccess) cudaGetLastError();
  return static_cast<CUresult>(error);
}
static inline void* driver_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
static inline CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<intptr_t>(device) + 1);
}
static inline CUdevice device_of(CUcontext context) {
  return static_cast<CUdevice>(reinterpret_cast<intptr_t>(context) - 1);
}
inline std::vector<CUcontext>& pushed_contexts() {
  static thread_local std::vector<CUcontext> all;
  return all;
}

}  // namespace loom_cuda

// --- devices, errors ---
static inline CUresult cuInit(unsigned flags) {
  int count = 0;
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE
                    : loom_cuda::driver_result([&] { return cudaGetDeviceCount(&count); });
}
static inline CUresult cuDriverGetVersion(int* version) {
  return loom_cuda::driver_result([&] { return cudaDriverGetVersion(version); });
}
static inline CUresult cuDeviceGetCount(int* count) {
  return loom_cuda::driver_result([&] { return cudaGetDeviceCount(count); });
}
static inline CUresult cuDeviceGet(CUdevice* device, int number) {
  int count = 0;
  const CUresult result = cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return result;
  if (number < 0 || number >= count) return CUDA_ERROR_INVALID_DEVICE;
  *device = number;
  return CUDA_SUCCESS;
}
static inline CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  cudaDeviceProp all;
  const CUresult result = loom_cuda::driver_result([&] { return cudaGetDeviceProperties(&all, device); });
  if (result != CUDA_SUCCESS) return result;
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  strncpy(name, all.name, static_cast<size_t>(length) - 1);
  name[length - 1] = 0;
  return CUDA_SUCCESS;
}
static inline CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  cudaDeviceProp all;
  const CUresult result = loom_cuda::driver_result([&] { return cudaGetDeviceProperties(&all, device); });
  if (result == CUDA_SUCCESS) *uuid = all.uuid;
  return result;
}
static inline CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  cudaDeviceProp all;
  const CUresult result = loom_cuda::driver_result([&] { return cudaGetDeviceProperties(&all, device); });
  if (result == CUDA_SUCCESS) *bytes = all.totalGlobalMem;
  return result;
}
static inline CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return loom_cuda::driver_result(
      [&] { return cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device); });
}
static inline CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  const CUresult result = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  return result == CUDA_SUCCESS
             ? cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
             : result;
}
static inline CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return loom_cuda::driver_result([&] { return cudaDeviceCanAccessPeer(can, device, peer); });
}
static inline CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return loom_cuda::driver_result([&] { return cudaDeviceGetPCIBusId(id, length, device); });
}
static inline CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return loom_cuda::driver_result([&] { return cudaDeviceGetByPCIBusId(device, id); });
}
static inline CUresult cuGetErrorString(CUresult result, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(result));
  return CUDA_SUCCESS;
}
static inline CUresult cuGetErrorName(CUresult result, const char** text) {
  switch (result) {
#define LOOM_CUDA_RESULT(name, number) \
  case name:                           \
    *text = #name;                     \
    return CUDA_SUCCESS;
    LOOM_CUDA_DRIVER_RESULTS(LOOM_CUDA_RESULT)
#undef LOOM_CUDA_RESULT
  }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

// --- contexts: a device has one, and it is there as long as the process ---
static inline CUresult cuCtxSetCurrent(CUcontext context) {
  return context == nullptr
             ? CUDA_SUCCESS
             : loom_cuda::driver_result([&] { return cudaSetDevice(loom_cuda::device_of(context)); });
}
static inline CUresult cuCtxGetDevice(CUdevice* device) {
  return loom_cuda::driver_result([&] { return cudaGetDevice(device); });
}
static inline CUresult cuCtxGetCurrent(CUcontext* context) {
  int device = 0;
  const CUresult result = cuCtxGetDevice(&device);
  *context = result == CUDA_SUCCESS ? loom_cuda::context_of(device) : nullptr;
  return result;
}
static inline CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const CUresult result = cuDeviceGet(&device, device);
  if (result == CUDA_SUCCESS) *context = loom_cuda::context_of(device);
  return result;
}
static inline CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDeviceGet(&device, device); }
static inline CUresult cuCtxPushCurrent(CUcontext context) {
  CUcontext before = nullptr;
  CUresult result = cuCtxGetCurrent(&before);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) loom_cuda::pushed_contexts().push_back(before);
  return result;
}
// It is current until it is popped or destroyed.
static inline CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice device) {
  const CUresult result = cuDevicePrimaryCtxRetain(context, device);
  return result == CUDA_SUCCESS ? cuCtxPushCurrent(*context) : result;
}
static inline CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams* params, unsigned flags,
                                   CUdevice device) {
  // An affinity of multiprocessors needs MPS; contexts that are shared with graphics exist on Windows alone.
  if (params != nullptr && params->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate(context, flags, device);
}
static inline CUresult cuCtxPopCurrent(CUcontext* context) {
  std::vector<CUcontext>& pushed = loom_cuda::pushed_contexts();
  if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext current = nullptr;
  const CUresult result = cuCtxGetCurrent(&current);
  if (context != nullptr) *context = current;
  if (result != CUDA_SUCCESS) return result;
  const CUcontext before = pushed.back();
  pushed.pop_back();
  return cuCtxSetCurrent(before);
}
// Where it is the current one, the one before is current again.
static inline CUresult cuCtxDestroy(CUcontext context) {
  CUcontext current = nullptr;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = cuCtxGetCurrent(&current);
  const bool is_pushed =
      result == CUDA_SUCCESS && current == context && !loom_cuda::pushed_contexts().empty();
  return is_pushed ? cuCtxPopCurrent(&current) : result;
}
static inline CUresult cuCtxSynchronize() {
  return loom_cuda::driver_result([&] { return cudaDeviceSynchronize(); });
}

// --- memory ---
static inline CUresult cuMemGetInfo(size_t* free_bytes, size_t* total) {
  return loom_cuda::driver_result([&] { return cudaMemGetInfo(free_bytes, total); });
}
static inline CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* made = nullptr;
  const CUresult result = loom_cuda::driver_result([&] { return cudaMalloc(&made, bytes); });
  if (result == CUDA_SUCCESS) *address = reinterpret_cast<CUdeviceptr>(made);
  return result;
}
static inline CUresult cuMemFree(CUdeviceptr address) {
  return loom_cuda::driver_result([&] { return cudaFree(loom_cuda::driver_pointer(address)); });
}
static inline CUresult cuMemAllocHost(void** address, size_t bytes) {
  return loom_cuda::driver_result([&] { return cudaMallocHost(address, bytes); });
}
static inline CUresult cuMemFreeHost(void* address) {
  return loom_cuda::driver_result([&] { return cudaFreeHost(address); });
}
static inline CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return loom_cuda::driver_result([&] {
    return cudaMemcpyAsync(loom_cuda::driver_pointer(to), from, bytes, cudaMemcpyHostToDevice, stream);
  });
}
static inline CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return loom_cuda::driver_result([&] {
    return cudaMemcpyAsync(to, loom_cuda::driver_pointer(from), bytes, cudaMemcpyDeviceToHost, stream);
  });
}
static inline CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return loom_cuda::driver_result([&] {
    return cudaMemcpyAsync(loom_cuda::driver_pointer(to), loom_cuda::driver_pointer(from), bytes,
                           cudaMemcpyDeviceToDevice, stream);
  });
}
static inline CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return loom_cuda::driver_result(
      [&] { return cudaMemcpy(loom_cuda::driver_pointer(to), from, bytes, cudaMemcpyHostToDevice); });
}
static inline CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return loom_cuda::driver_result(
      [&] { return cudaMemcpy(to, loom_cuda::driver_pointer(from), bytes, cudaMemcpyDeviceToHost); });
}
static inline CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return loom_cuda::driver_result([&] {
    return cudaMemcpy(loom_cuda::driver_pointer(to), loom_cuda::driver_pointer(from), bytes,
                      cudaMemcpyDeviceToDevice);
  });
}
static inline CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return loom_cuda::driver_result(
      [&] { return cudaMemsetAsync(loom_cuda::driver_pointer(to), value, count, stream); });
}
static inline CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return loom_cuda::driver_result([&] { return cudaMemset(loom_cuda::driver_pointer(to), value, count); });
}
static inline CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  const std::vector<unsigned> values(count, value);
  return cuMemcpyHtoD(to, values.data(), count * sizeof(unsigned));
}

// --- streams, events ---
static inline CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return loom_cuda::driver_result([&] { return cudaStreamCreateWithFlags(stream, flags); });
}
static inline CUresult cuStreamDestroy(CUstream stream) {
  return loom_cuda::driver_result([&] { return cudaStreamDestroy(stream); });
}
static inline CUresult cuStreamSynchronize(CUstream stream) {
  return loom_cuda::driver_result([&] { return cudaStreamSynchronize(stream); });
}
static inline CUresult cuStreamQuery(CUstream stream) {
  return loom_cuda::driver_result([&] { return cudaStreamQuery(stream); });
}
static inline CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return loom_cuda::driver_result([&] { return cudaStreamWaitEvent(stream, event, flags); });
}
static inline CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return loom_cuda::driver_result([&] { return cudaEventCreateWithFlags(event, flags); });
}
static inline CUresult cuEventDestroy(CUevent event) {
  return loom_cuda::driver_result([&] { return cudaEventDestroy(event); });
}
static inline CUresult cuEventRecord(CUevent event, CUstream stream) {
  return loom_cuda::driver_result([&] { return cudaEventRecord(event, stream); });
}
static inline CUresult cuEventSynchronize(CUevent event) {
  return loom_cuda::driver_result([&] { return cudaEventSynchronize(event); });
}
static inline CUresult cuEventQuery(CUevent event) {
  return loom_cuda::driver_result([&] { return cudaEventQuery(event); });
}
static inline CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return loom_cuda::driver_result([&] { return cudaEventElapsedTime(milliseconds, begin, end); });
}
