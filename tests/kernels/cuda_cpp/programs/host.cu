// What a program calls on the host: rows of memory, boxes, registered memory, callbacks, old names of
// headers.
#include <cuComplex.h>
#include <cuda.h>
#include <device_atomic_functions.h>
#include <nvToolsExt.h>
#include <nvtx3/nvToolsExt.h>
#include <sm_60_atomic_functions.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cub/device/device_scan.cuh>
#include <cuda/cmath>

__global__ void add(float* x, size_t pitch, int width, float value) {
  float* const row = reinterpret_cast<float*>(reinterpret_cast<char*>(x) + blockIdx.x * pitch);
  __builtin_assume(width > 0);
  const cuda::fast_mod_div<unsigned> divisor(32);
  if (threadIdx.x / divisor == 0 && threadIdx.x % divisor < width) row[threadIdx.x] += value;
}

#define TRY(call) \
  if ((call) != cudaSuccess) return #call

// x and out: [height, width]
extern "C" const char* rows(const float* x, float* out, int width, int height) {
  float* own;
  size_t pitch;
  const size_t bytes = width * sizeof(float);
  TRY(cudaMallocPitch(&own, &pitch, bytes, height));
  if (pitch < bytes || pitch % 256 != 0) return "pitch";
  TRY(cudaMemset2D(own, pitch, 0xFF, bytes, height));
  TRY(cudaMemcpy2D(own, pitch, x, bytes, bytes, height - 1, cudaMemcpyHostToDevice));
  TRY(cudaMemset2D(reinterpret_cast<char*>(own) + (height - 1) * pitch, pitch, 0, bytes, 1));
  int cluster = 0;
  cudaLaunchConfig_t config;
  config.blockDim = 32;
  TRY(cudaOccupancyMaxPotentialClusterSize(&cluster, add, &config));
  if (cluster != 1) return "cluster";
  add<<<height, 33>>>(own, pitch, width, 1.0f);
  TRY(cudaMemcpy2D(out, bytes, own, pitch, bytes, height, cudaMemcpyDeviceToHost));
  return cudaFree(own) == cudaSuccess ? nullptr : "cudaFree";
}

__device__ int counted = 41;
__global__ void count_one() { counted += 1; }

static bool is_text(const char* text, const char* wanted) { return strcmp(text, wanted) == 0; }

// Errors that are never returned here have their names and texts, too.
extern "C" const char* names_of_errors() {
  if (!is_text(cudaGetErrorName(cudaErrorPriorLaunchFailure), "cudaErrorPriorLaunchFailure")) return "a name";
  if (!is_text(cudaGetErrorString(cudaErrorECCUncorrectable), "uncorrectable ECC error encountered"))
    return "a text";
  return is_text(cudaGetErrorString((cudaError_t)12345), "unrecognized error code") ? nullptr
                                                                                    : "an unknown one";
}

// Names that few programs have.
extern "C" const char* facts_of_devices_and_streams() {
  char id[32];
  int device = -1;
  TRY(cudaDeviceGetPCIBusId(id, sizeof(id), 0));
  TRY(cudaDeviceGetByPCIBusId(&device, id));
  if (device != 0) return "device of an id";
  device = -1;
  TRY(cudaDeviceGetByPCIBusId(&device, strchr(id, ':') + 1));
  if (device != 0) return "device of an id without its domain";
  if (cudaDeviceGetByPCIBusId(&device, "00ff:ff:ff.0") != cudaErrorInvalidDevice) return "no device";
  if (cudaInitDevice(1000, 0, 0) != cudaErrorInvalidDevice) return "cudaInitDevice";
  cudaGetLastError();
  cudaStream_t stream;
  unsigned long long first = 0, second = 0;
  TRY(cudaStreamCreate(&stream));
  TRY(cudaStreamGetDevice(stream, &device));
  TRY(cudaStreamGetId(stream, &first));
  TRY(cudaStreamGetId(nullptr, &second));
  if (device != 0 || first == second) return "device or number of a stream";
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  TRY(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
  TRY(cudaCtxResetPersistingL2Cache());
  cudaLaunchConfig_t config;
  config.stream = stream;
  TRY(cudaLaunchKernelExC(&config, (void*)count_one, nullptr));
  int found = 0;
  TRY(cudaMemcpyFromSymbolAsync(&found, counted, sizeof(int), 0, cudaMemcpyDeviceToHost, stream));
  TRY(cudaStreamDestroy(stream));
  if (found < 42) return "cudaMemcpyFromSymbolAsync";
  size_t bytes = 0;
  cudaDeviceProp all;
  TRY(cudaGetDeviceProperties(&all, 0));
  TRY(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, count_one, 2, 64));
  return bytes == 0 || 2 * bytes > all.sharedMemPerMultiprocessor ? "shared memory" : nullptr;
}

// out: [2, 3, 4] bytes of a box whose inner part, from (1, 1, 0) on, is 7 and whose rest is 1
extern "C" const char* boxes(unsigned char* out) {
  cudaPitchedPtr box;
  TRY(cudaMalloc3D(&box, make_cudaExtent(4, 3, 2)));
  TRY(cudaMemset3D(box, 1, make_cudaExtent(4, 3, 2)));
  unsigned char inner[2 * 2 * 2];
  memset(inner, 7, sizeof(inner));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(inner, 2, 2, 2);
  copy.dstPtr = box;
  copy.dstPos = make_cudaPos(1, 1, 0);
  copy.extent = make_cudaExtent(2, 2, 2);
  copy.kind = cudaMemcpyHostToDevice;
  TRY(cudaMemcpy3D(&copy));
  cudaMemcpy3DParms back = {};
  back.srcPtr = box;
  back.dstPtr = make_cudaPitchedPtr(out, 4, 4, 3);
  back.extent = make_cudaExtent(4, 3, 2);
  back.kind = cudaMemcpyDeviceToHost;
  TRY(cudaMemcpy3D(&back));
  return cudaFree(box.ptr) == cudaSuccess ? nullptr : "cudaFree";
}

static void note(cudaStream_t, cudaError_t error, void* at) {
  *static_cast<float*>(at) = error == cudaSuccess ? 5.0f : -1.0f;
}

// x: [2] of the host; becomes 3, 5
extern "C" const char* shared_with_the_host(float* x) {
  float* device;
  TRY(cudaHostRegister(x, 2 * sizeof(float), cudaHostRegisterMapped));
  TRY(cudaHostGetDevicePointer(&device, x, 0));
  if (nvtxRangePush("add") >= 0) return "a tool listens";
  add<<<1, 1>>>(device, 0, 1, 2.0f);
  nvtxRangePop();
  TRY(cudaStreamAddCallback(nullptr, note, x + 1, 0));
  CubDebugExit(cudaStreamSynchronize(nullptr));
  TRY(cudaHostUnregister(x));
  return nullptr;
}

// out: [8] sizes of device 0, and how many blocks of 512 threads one of its cores holds
extern "C" const char* sizes(int64_t* out) {
  cudaDeviceProp all;
  TRY(cudaGetDeviceProperties(&all, 0));
  const cudaDeviceAttr asked[] = {cudaDevAttrMaxThreadsPerMultiProcessor, cudaDevAttrL2CacheSize,
                                  cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrGlobalMemoryBusWidth};
  int found[4], blocks = 0;
  for (int i = 0; i < 4; ++i) TRY(cudaDeviceGetAttribute(&found[i], asked[i], 0));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 512, 0));
  const int64_t all_sizes[] = {found[0],
                               found[1],
                               found[2],
                               found[3],
                               all.regsPerMultiprocessor,
                               static_cast<int64_t>(all.sharedMemPerMultiprocessor),
                               all.memoryClockRate,
                               blocks};
  std::copy(all_sizes, all_sizes + 8, out);
  return nullptr;
}

// out: [8] of textures and surfaces, each by its attribute, if the field has it, too
extern "C" const char* texture_sizes(int* out) {
  cudaDeviceProp all;
  TRY(cudaGetDeviceProperties(&all, 0));
  const cudaDeviceAttr asked[] = {
      cudaDevAttrMaxTexture1DWidth,       cudaDevAttrMaxTexture2DHeight,
      cudaDevAttrMaxTexture3DDepth,       cudaDevAttrMaxTexture2DLayeredLayers,
      cudaDevAttrMaxTexture2DLinearPitch, cudaDevAttrMaxSurface2DWidth,
      cudaDevAttrTexturePitchAlignment,   cudaDevAttrSingleToDoublePrecisionPerfRatio};
  const int fields[] = {all.maxTexture1D,
                        all.maxTexture2D[1],
                        all.maxTexture3D[2],
                        all.maxTexture2DLayered[2],
                        all.maxTexture2DLinear[2],
                        all.maxSurface2D[0],
                        static_cast<int>(all.texturePitchAlignment),
                        all.singleToDoublePrecisionPerfRatio};
  for (int i = 0; i < 8; ++i) {
    TRY(cudaDeviceGetAttribute(&out[i], asked[i], 0));
    if (out[i] != fields[i]) return "an attribute differs from its field";
  }
  int unknown = 0;
  if (cudaDeviceGetAttribute(&unknown, static_cast<cudaDeviceAttr>(9999), 0) != cudaErrorInvalidValue)
    return "an attribute that does not exist";
  return cudaGetLastError() == cudaErrorInvalidValue ? nullptr : "the last error";
}

#define DRIVER(call) \
  if ((call) != CUDA_SUCCESS) return #call

// The driver library is the runtime library by other names.
extern "C" const char* driver() {
  int count = 0, runtime_count = 0, number = 0, other = 0;
  DRIVER(cuInit(0));
  DRIVER(cuDeviceGetCount(&count));
  TRY(cudaGetDeviceCount(&runtime_count));
  if (count != runtime_count) return "devices";
  CUdevice device = -1;
  if (cuDeviceGet(&device, count) != CUDA_ERROR_INVALID_DEVICE) return "a device that does not exist";
  DRIVER(cuDeviceGet(&device, 0));
  cudaDeviceProp all;
  TRY(cudaGetDeviceProperties(&all, 0));
  char name[256], start[4];
  size_t bytes = 0;
  DRIVER(cuDeviceGetName(name, sizeof(name), device));
  DRIVER(cuDeviceGetName(start, sizeof(start), device));
  DRIVER(cuDeviceTotalMem(&bytes, device));
  if (strcmp(name, all.name) != 0 || strncmp(start, all.name, 3) != 0 || bytes != all.totalGlobalMem)
    return "name, memory";
  DRIVER(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
  if (number != all.maxThreadsPerBlock) return "attribute";
  DRIVER(cuDeviceComputeCapability(&number, &other, device));
  if (number != all.major || other != all.minor) return "compute capability";
  const char* text = nullptr;
  DRIVER(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
  if (strcmp(text, "CUDA_ERROR_INVALID_VALUE") != 0) return text;
  CUcontext context = nullptr, current = nullptr;
  CUexecAffinityParam some = {CU_EXEC_AFFINITY_TYPE_SM_COUNT, {{4}}};
  CUctxCreateParams params = {&some, 1, nullptr};
  if (cuCtxCreate(&context, &params, 0, device) != CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY) return "affinity";
  DRIVER(cuCtxCreate(&context, NULL, 0, device));
  DRIVER(cuCtxDestroy(context));
  DRIVER(cuCtxCreate(&context, 0, device));
  DRIVER(cuCtxGetCurrent(&current));
  if (current != context) return "context";
  DRIVER(cuCtxPushCurrent(context));
  DRIVER(cuCtxPopCurrent(&current));
  DRIVER(cuCtxPopCurrent(&current));
  if (current != context || cuCtxPopCurrent(&current) != CUDA_ERROR_INVALID_CONTEXT) return "stack";
  CUdeviceptr memory = 0;
  unsigned values[3] = {1, 2, 3};
  DRIVER(cuMemAlloc(&memory, sizeof(values)));
  DRIVER(cuMemsetD32(memory, 7, 3));
  DRIVER(cuMemcpyHtoD(memory, values, sizeof(unsigned)));
  CUstream stream = nullptr;
  CUevent event = nullptr;
  DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DRIVER(cuMemsetD8Async(memory + 8, 0, 4, stream));
  DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  DRIVER(cuEventRecord(event, stream));
  DRIVER(cuEventSynchronize(event));
  DRIVER(cuMemcpyDtoH(values, memory, sizeof(values)));
  DRIVER(cuEventDestroy(event));
  DRIVER(cuStreamDestroy(stream));
  DRIVER(cuMemFree(memory));
  if (values[0] != 1 || values[1] != 7 || values[2] != 0) return "values";
  if (cuMemAlloc(&memory, 0) != CUDA_ERROR_INVALID_VALUE) return "no bytes";
  if (cudaDeviceGetP2PAttribute(&number, cudaDevP2PAttrAccessSupported, 0, 0) != cudaErrorInvalidDevice)
    return "its own peer";
  cudaGetLastError();  // that of the runtime library's function
  if (cuMemAlloc(&memory, size_t{1} << 60) != CUDA_ERROR_OUT_OF_MEMORY) return "too much";
  DRIVER(cuCtxSynchronize());
  return cudaGetLastError() == cudaSuccess ? nullptr : "the runtime library's last error";
}

// z: [4] numbers; out: [4, 2]: product, quotient, conjugate, size
extern "C" void complex_numbers(const double* z, double* out) {
  const cuDoubleComplex a = make_cuDoubleComplex(z[0], z[1]), b = make_cuDoubleComplex(z[2], z[3]);
  const cuDoubleComplex found[4] = {cuCmul(a, b), cuCdiv(a, b), cuConj(a),
                                    make_cuDoubleComplex(cuCabs(a), 0)};
  for (int i = 0; i < 4; ++i) out[2 * i] = cuCreal(found[i]), out[2 * i + 1] = cuCimag(found[i]);
}
