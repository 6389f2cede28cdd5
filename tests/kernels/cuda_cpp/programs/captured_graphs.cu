// Graphs and pools of memory by CUDA's runtime library. Each function returns null, or the text of the check
// that failed.
#include <cuda_runtime.h>

#define CHECK(condition) \
  if (!(condition)) return #condition " is false"
#define OK(call) CHECK((call) == cudaSuccess)

__global__ void add(float* x, float by) { *x += by; }

namespace {

// On two streams: twice the number is added.
cudaError_t capture(float* x, float by, cudaStream_t stream, cudaStream_t other, cudaGraph_t* graph) {
  cudaEvent_t forth, back;
  cudaEventCreate(&forth);
  cudaEventCreate(&back);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  add<<<1, 1, 0, stream>>>(x, by);
  cudaEventRecord(forth, stream);
  cudaStreamWaitEvent(other, forth, 0);
  add<<<1, 1, 0, other>>>(x, by);
  cudaEventRecord(back, other);
  cudaStreamWaitEvent(stream, back, 0);
  const cudaError_t error = cudaStreamEndCapture(stream, graph);
  cudaEventDestroy(forth);
  cudaEventDestroy(back);
  return error;
}

struct Device {
  cudaStream_t stream, other;
  float* x;
  Device() {
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaMalloc(&x, sizeof(float));
    cudaMemset(x, 0, sizeof(float));
  }
  ~Device() {
    cudaFree(x);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
  }
  float value() const {
    float number = -1;
    cudaDeviceSynchronize();
    cudaMemcpy(&number, x, sizeof(float), cudaMemcpyDeviceToHost);
    return number;
  }
};

}  // namespace

extern "C" const char* replayed() {
  const Device device;
  cudaGraph_t graph, other;
  cudaGraphExec_t executable;
  OK(capture(device.x, 1, device.stream, device.other, &graph));
  CHECK(device.value() == 0);
  size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  CHECK(count == 2);
  cudaGraphNode_t nodes[2];
  OK(cudaGraphGetNodes(graph, nodes, &count));
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(nodes[1], &type));
  CHECK(type == cudaGraphNodeTypeKernel);
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 4; ++i) OK(cudaGraphLaunch(executable, device.stream));
  CHECK(device.value() == 8);
  OK(capture(device.x, 50, device.stream, device.other, &other));
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(executable, other, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(executable, nullptr));
  CHECK(device.value() == 108);
  OK(cudaGraphDestroy(other));
  OK(cudaGraphExecDestroy(executable));
  return nullptr;
}

// Host memory that is not pinned is read and written at each launch.
extern "C" const char* copied() {
  const Device device;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  float in = 1, out = 0;
  OK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeGlobal));
  OK(cudaMemcpyAsync(device.x, &in, sizeof(float), cudaMemcpyHostToDevice, device.stream));
  add<<<1, 1, 0, device.stream>>>(device.x, 1);
  OK(cudaMemcpyAsync(&out, device.x, sizeof(float), cudaMemcpyDeviceToHost, device.stream));
  OK(cudaStreamEndCapture(device.stream, &graph));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(out == 0);
  for (int i = 0; i < 3; ++i) {
    in = 10 * i;
    OK(cudaGraphLaunch(executable, device.stream));
    OK(cudaStreamSynchronize(device.stream));
    CHECK(out == in + 1);
  }
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  return nullptr;
}

// Memory of pools is what cudaMalloc() gives.
extern "C" const char* pooled() {
  const Device device;
  unsigned flags = 7;
  OK(cudaStreamGetFlags(nullptr, &flags));
  CHECK(flags == cudaStreamDefault);
  OK(cudaStreamGetFlags(device.stream, &flags));
  CHECK(flags == cudaStreamDefault);
  cudaMemPool_t pool, own;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaDeviceGetDefaultMemPool(&own, 1000) == cudaErrorInvalidDevice);
  unsigned long long threshold = 1 << 20, found = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &found));
  CHECK(found == threshold);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &found) == cudaErrorNotSupported);
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  OK(cudaMemPoolCreate(&own, &properties));
  float* x;
  OK(cudaMallocFromPoolAsync(&x, sizeof(float), own, device.stream));
  OK(cudaMemsetAsync(x, 0, sizeof(float), device.stream));
  add<<<1, 1, 0, device.stream>>>(x, 3);
  float number = 0;
  OK(cudaMemcpyAsync(&number, x, sizeof(float), cudaMemcpyDeviceToHost, device.stream));
  OK(cudaFreeAsync(x, device.stream));
  OK(cudaStreamSynchronize(device.stream));
  CHECK(number == 3);
  OK(cudaMemPoolTrimTo(own, 0));
  OK(cudaMemPoolDestroy(own));
  CHECK(cudaMemPoolDestroy(pool) == cudaErrorInvalidValue);
  return nullptr;
}

extern "C" const char* refused() {
  const Device device;
  cudaGraph_t graph, short_graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(device.stream, &graph) == cudaErrorIllegalState);
  CHECK(cudaGraphLaunch(nullptr, device.stream) == cudaErrorInvalidValue);
  OK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, device.stream>>>(device.x, 1);
  CHECK(cudaStreamQuery(device.stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(device.stream, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  OK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, device.stream>>>(device.x, 1);
  OK(cudaStreamEndCapture(device.stream, &short_graph));
  OK(capture(device.x, 1, device.stream, device.other, &graph));
  OK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  CHECK(cudaGraphExecUpdate(executable, short_graph, nullptr) == cudaErrorGraphExecUpdateFailure);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(short_graph));
  cudaGetLastError();
  CHECK(device.value() == 0);
  return nullptr;
}
