// The part of CUDA's runtime library that extensions call: types and numbers are CUDA's, the functions are
// those of torch-loom's devices.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "loom_cuda/device_attributes.h"
#include "loom_cuda/error_codes.h"
#include "loom_cuda/qualifiers.h"
#include "loom_cuda/types.h"

// Programs ask by these names whether CUDA's headers are there.
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_API_H__

#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __CUDART_API_VERSION CUDART_VERSION

#define LOOM_CUDART extern "C" __attribute__((visibility("default")))

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUfunc_st* cudaFunction_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
typedef struct CUuserObject_st* cudaUserObject_t;
typedef unsigned long long cudaGraphConditionalHandle;

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04
#define cudaEventRecordDefault 0x00
#define cudaEventRecordExternal 0x01
#define cudaEventWaitDefault 0x00
#define cudaEventWaitExternal 0x01
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01
#define cudaHostRegisterMapped 0x02
#define cudaMemAttachGlobal 0x01
#define cudaMemAttachHost 0x02
#define cudaMemAttachSingle 0x04
#define cudaDeviceScheduleAuto 0x00
#define cudaDeviceScheduleSpin 0x01
#define cudaDeviceScheduleYield 0x02
#define cudaDeviceScheduleBlockingSync 0x04
#define cudaDeviceBlockingSync 0x04
#define cudaDeviceMapHost 0x08
#define cudaDeviceLmemResizeToMax 0x10
#define cudaOccupancyDefault 0x00
#define cudaOccupancyDisableCachingOverride 0x01
#define cudaIpcMemLazyEnablePeerAccess 0x01
#define CUDA_IPC_HANDLE_SIZE 64

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeClusterDimMustBeSet = 10,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
enum cudaFuncCache {
  cudaFuncCachePreferNone = 0,
  cudaFuncCachePreferShared = 1,
  cudaFuncCachePreferL1 = 2,
  cudaFuncCachePreferEqual = 3
};
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault = 0,
  cudaSharedMemBankSizeFourByte = 1,
  cudaSharedMemBankSizeEightByte = 2
};
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100
};
enum cudaLimit {
  cudaLimitStackSize = 0,
  cudaLimitPrintfFifoSize = 1,
  cudaLimitMallocHeapSize = 2,
  cudaLimitDevRuntimeSyncDepth = 3,
  cudaLimitMaxL2FetchGranularity = 5,
  cudaLimitPersistingL2CacheSize = 6
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
enum cudaDeviceAttr {
#define LOOM_CUDA_ATTRIBUTE(name, driver_name, number, field) cudaDevAttr##name = (number),
  LOOM_CUDA_DEVICE_ATTRIBUTES(LOOM_CUDA_ATTRIBUTE)
#undef LOOM_CUDA_ATTRIBUTE
};
enum cudaDeviceP2PAttr {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported = 2,
  cudaDevP2PAttrNativeAtomicSupported = 3,
  cudaDevP2PAttrCudaArrayAccessSupported = 4
};
enum cudaComputeMode {
  cudaComputeModeDefault = 0,
  cudaComputeModeExclusive = 1,
  cudaComputeModeProhibited = 2,
  cudaComputeModeExclusiveProcess = 3
};
struct cudaPointerAttributes {
  enum cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes,
      preferredShmemCarveout;
};
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid, cudaUUID_t;
// The fields of CUDA 12 and 13.
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2];
  int maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
  int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3];
  int maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
  int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess;
  int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
};
enum cudaMemLocationType {
  cudaMemLocationTypeInvalid = 0,
  cudaMemLocationTypeDevice = 1,
  cudaMemLocationTypeHost = 2,
  cudaMemLocationTypeHostNuma = 3,
  cudaMemLocationTypeHostNumaCurrent = 4
};
struct cudaMemLocation {
  enum cudaMemLocationType type;
  int id;
};
#define cudaCpuDeviceId ((int)-1)
#define cudaInvalidDeviceId ((int)-2)
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly = 2,
  cudaMemAdviseSetPreferredLocation = 3,
  cudaMemAdviseUnsetPreferredLocation = 4,
  cudaMemAdviseSetAccessedBy = 5,
  cudaMemAdviseUnsetAccessedBy = 6
};
typedef struct cudaIpcMemHandle_st {
  char reserved[CUDA_IPC_HANDLE_SIZE];
} cudaIpcMemHandle_t;
typedef struct cudaIpcEventHandle_st {
  char reserved[CUDA_IPC_HANDLE_SIZE];
} cudaIpcEventHandle_t;
struct cudaExtent {
  size_t width, height, depth;
};
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void* data);
typedef void (*cudaHostFn_t)(void* data);
typedef struct CUuserObject_st* cudaUserObject_t;
enum cudaUserObjectFlags { cudaUserObjectNoDestructorSync = 1 };
enum cudaUserObjectRetainFlags { cudaGraphUserObjectMove = 1 };

// --- errors, devices ---
LOOM_CUDART cudaError_t cudaGetLastError(void);
LOOM_CUDART cudaError_t cudaPeekAtLastError(void);
LOOM_CUDART const char* cudaGetErrorString(cudaError_t error);
LOOM_CUDART const char* cudaGetErrorName(cudaError_t error);
LOOM_CUDART cudaError_t cudaGetDeviceCount(int* count);
LOOM_CUDART cudaError_t cudaGetDevice(int* device);
LOOM_CUDART cudaError_t cudaSetDevice(int device);
LOOM_CUDART cudaError_t cudaDeviceSynchronize(void);
LOOM_CUDART cudaError_t cudaDeviceReset(void);
LOOM_CUDART cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device);
LOOM_CUDART cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device);
LOOM_CUDART cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
LOOM_CUDART cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value);
LOOM_CUDART cudaError_t cudaDeviceGetLimit(size_t* value, enum cudaLimit limit);
LOOM_CUDART cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config);
LOOM_CUDART cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config);
LOOM_CUDART cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
LOOM_CUDART cudaError_t cudaDeviceGetP2PAttribute(int* value, enum cudaDeviceP2PAttr attribute, int device,
                                                  int peer);
LOOM_CUDART cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
LOOM_CUDART cudaError_t cudaDeviceDisablePeerAccess(int peer);
// How the host waits: there is one way here.
LOOM_CUDART cudaError_t cudaSetDeviceFlags(unsigned flags);
LOOM_CUDART cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
LOOM_CUDART cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id);
LOOM_CUDART cudaError_t cudaChooseDevice(int* device, const struct cudaDeviceProp* wanted);
LOOM_CUDART cudaError_t cudaGetDeviceFlags(unsigned* flags);
LOOM_CUDART cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
LOOM_CUDART cudaError_t cudaRuntimeGetVersion(int* version);
LOOM_CUDART cudaError_t cudaDriverGetVersion(int* version);
LOOM_CUDART cudaError_t cudaProfilerStart(void);
LOOM_CUDART cudaError_t cudaProfilerStop(void);

// --- memory ---
LOOM_CUDART cudaError_t cudaMalloc(void** address, size_t bytes);
LOOM_CUDART cudaError_t cudaFree(void* address);
LOOM_CUDART cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaFreeAsync(void* address, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMallocHost(void** address, size_t bytes);
LOOM_CUDART cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags);
LOOM_CUDART cudaError_t cudaFreeHost(void* address);
LOOM_CUDART cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned flags);
LOOM_CUDART cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind);
LOOM_CUDART cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                                        cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                            size_t bytes, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                          size_t width, size_t height, enum cudaMemcpyKind kind,
                                          cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemset(void* address, int value, size_t bytes);
LOOM_CUDART cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
LOOM_CUDART cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes,
                                                 const void* address);
// Hints where memory should lie, all of which is one here.
LOOM_CUDART cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes,
                                             struct cudaMemLocation location, unsigned flags,
                                             cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemPrefetchBatchAsync(void** addresses, size_t* bytes, size_t count,
                                                  struct cudaMemLocation* locations, size_t* location_starts,
                                                  size_t num_locations, unsigned long long flags,
                                                  cudaStream_t stream);
LOOM_CUDART cudaError_t cudaMemAdvise(const void* address, size_t bytes, enum cudaMemoryAdvise advice,
                                      struct cudaMemLocation location);

// --- streams, events ---
LOOM_CUDART cudaError_t cudaStreamCreate(cudaStream_t* stream);
LOOM_CUDART cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
LOOM_CUDART cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
LOOM_CUDART cudaError_t cudaStreamDestroy(cudaStream_t stream);
LOOM_CUDART cudaError_t cudaStreamSynchronize(cudaStream_t stream);
LOOM_CUDART cudaError_t cudaStreamQuery(cudaStream_t stream);
LOOM_CUDART cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
LOOM_CUDART cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
LOOM_CUDART cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
LOOM_CUDART cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id);
// Streams of the program do not wait for the default stream.
LOOM_CUDART cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags);
LOOM_CUDART cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status);
LOOM_CUDART cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode);
// Memory of the host and of the device is one.
LOOM_CUDART cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* address, size_t bytes,
                                                 unsigned flags);
LOOM_CUDART cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
LOOM_CUDART cudaError_t cudaEventCreate(cudaEvent_t* event);
LOOM_CUDART cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
LOOM_CUDART cudaError_t cudaEventDestroy(cudaEvent_t event);
LOOM_CUDART cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
LOOM_CUDART cudaError_t cudaEventSynchronize(cudaEvent_t event);
LOOM_CUDART cudaError_t cudaEventQuery(cudaEvent_t event);
LOOM_CUDART cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
// Memory and events of other processes: cudaErrorNotSupported. Torch shares tensors by means of its own.
LOOM_CUDART cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event);
LOOM_CUDART cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle);
LOOM_CUDART cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address);
LOOM_CUDART cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned flags);
LOOM_CUDART cudaError_t cudaIpcCloseMemHandle(void* address);
// Graphs, of captured streams and of single nodes.
enum cudaGraphNodeType {
  cudaGraphNodeTypeKernel = 0,
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset = 2,
  cudaGraphNodeTypeHost = 3,
  cudaGraphNodeTypeGraph = 4,
  cudaGraphNodeTypeEmpty = 5,
  cudaGraphNodeTypeWaitEvent = 6,
  cudaGraphNodeTypeEventRecord = 7
};
// What a node does: `issue` puts it on a stream. The graph takes `own`, which `release` frees.
struct loom_cuda_graph_work {
  void* own;
  cudaError_t (*issue)(const void* own, cudaStream_t stream);
  void (*release)(void* own);
};
// Of bytes, or of elements of 2 or 4 bytes: `width` of them in a row, `height` rows `pitch` bytes apart.
struct cudaMemsetParams {
  void* dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};
LOOM_CUDART cudaError_t loom_cuda_fill(const struct cudaMemsetParams* fill, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags);
LOOM_CUDART cudaError_t loom_cuda_graph_add(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* after, size_t count,
                                            enum cudaGraphNodeType type, struct loom_cuda_graph_work work);
// Gives a node other work, in an executable graph or, without one, in its own.
LOOM_CUDART cudaError_t loom_cuda_graph_set(cudaGraphExec_t executable, cudaGraphNode_t node,
                                            enum cudaGraphNodeType type, struct loom_cuda_graph_work work);
// Null unless the node is of this type and was added by itself.
LOOM_CUDART const void* loom_cuda_graph_work_of(cudaGraphNode_t node, enum cudaGraphNodeType type);
LOOM_CUDART cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                 const cudaGraphNode_t* to, size_t count);
LOOM_CUDART cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node);
LOOM_CUDART cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                unsigned is_enabled);
LOOM_CUDART cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                unsigned* is_enabled);
LOOM_CUDART cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
LOOM_CUDART cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* found,
                                                     size_t* count);
LOOM_CUDART cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                          size_t* count);
LOOM_CUDART cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
LOOM_CUDART cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
LOOM_CUDART cudaError_t loom_cuda_graph_instantiate(cudaGraphExec_t* executable, cudaGraph_t graph);
LOOM_CUDART cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
LOOM_CUDART cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
LOOM_CUDART cudaError_t loom_cuda_graph_update(cudaGraphExec_t executable, cudaGraph_t graph);
LOOM_CUDART cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
LOOM_CUDART cudaError_t cudaGraphDestroy(cudaGraph_t graph);
LOOM_CUDART cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph);
LOOM_CUDART cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
LOOM_CUDART cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* type);
LOOM_CUDART cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags);
// Graphs keep no objects of the program: cudaErrorNotSupported.
LOOM_CUDART cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                             unsigned count, unsigned flags);
LOOM_CUDART cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count);
LOOM_CUDART cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                                  unsigned flags);
// Of a captured stream: only the status and its number are known.
LOOM_CUDART cudaError_t loom_cuda_capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus* status,
                                               unsigned long long* id);

#ifdef __cplusplus
#include "loom_cuda/runtime_templates.h"
#endif
