// Graphs that are put together node by node. Each function returns null, or the text of the check that
// failed.
#include <cuda_runtime.h>

#include <vector>

#define CHECK(condition) \
  if (!(condition)) return #condition " is false"
#define OK(call) CHECK((call) == cudaSuccess)

__global__ void scale(float* x, int n, double by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
__global__ void sum(const float* x, int n, double* result) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < n; ++i) *result += x[i];
  }
}

namespace {

constexpr int kCount = 100;

struct Step {
  float* x;
  int n = kCount;
  double by;
  void* values[3] = {&x, &n, &by};
  cudaKernelNodeParams params() {
    cudaKernelNodeParams made = {};
    made.func = (void*)scale;
    made.gridDim = dim3(4);
    made.blockDim = dim3(32);
    made.kernelParams = values;
    return made;
  }
};

void count_call(void* calls) { ++*static_cast<int*>(calls); }

}  // namespace

extern "C" const char* launched() {
  float* x;
  double *total, host_total = 0;
  int calls = 0;
  std::vector<float> host(kCount, 1);
  OK(cudaMalloc(&x, kCount * sizeof(float)));
  OK(cudaMalloc(&total, sizeof(double)));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t in, clear, scaled, added, out, told, done;

  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(host.data(), kCount * sizeof(float), kCount, 1);
  copy.dstPtr = make_cudaPitchedPtr(x, kCount * sizeof(float), kCount, 1);
  copy.extent = make_cudaExtent(kCount * sizeof(float), 1, 1);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaGraphAddMemcpyNode(&in, graph, nullptr, 0, &copy));
  cudaMemsetParams fill = {};
  fill.dst = total;
  fill.elementSize = 4;
  fill.width = 2;
  fill.height = 1;
  OK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &fill));
  {
    // The node keeps the values of its launch.
    Step step{x, kCount, 3};
    const cudaKernelNodeParams params = step.params();
    OK(cudaGraphAddKernelNode(&scaled, graph, nullptr, 0, &params));
    step.by = 1000;
  }
  OK(cudaGraphAddDependencies(graph, &in, &scaled, 1));
  int n = kCount;
  void* values[] = {&x, &n, &total};
  cudaKernelNodeParams params = {};
  params.func = (void*)sum;
  params.gridDim = dim3(1);
  params.blockDim = dim3(32);
  params.kernelParams = values;
  const cudaGraphNode_t both[] = {clear, scaled};
  OK(cudaGraphAddKernelNode(&added, graph, both, 2, &params));
  OK(cudaGraphAddMemcpyNode1D(&out, graph, &added, 1, &host_total, total, sizeof(double),
                              cudaMemcpyDeviceToHost));
  cudaHostNodeParams call = {count_call, &calls};
  OK(cudaGraphAddHostNode(&told, graph, &out, 1, &call));
  OK(cudaGraphAddEmptyNode(&done, graph, &told, 1));

  size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  CHECK(count == 7);
  OK(cudaGraphGetRootNodes(graph, nullptr, &count));
  CHECK(count == 2);
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(told, &type));
  CHECK(type == cudaGraphNodeTypeHost);
  cudaKernelNodeParams kept;
  OK(cudaGraphKernelNodeGetParams(scaled, &kept));
  CHECK(kept.func == (void*)scale && *static_cast<double*>(kept.kernelParams[2]) == 3);
  CHECK(cudaGraphKernelNodeGetParams(told, &kept) == cudaErrorInvalidValue);

  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 300 && calls == 1);
  host.assign(kCount, 2);  // copies read it at the launch
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 600 && calls == 2);

  // The executable graph changes alone.
  Step other{x, kCount, 5};
  const cudaKernelNodeParams changed = other.params();
  OK(cudaGraphExecKernelNodeSetParams(executable, scaled, &changed));
  CHECK(cudaGraphExecKernelNodeSetParams(executable, told, &changed) == cudaErrorInvalidValue);
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 1000);
  OK(cudaGraphExecUpdate(executable, graph, nullptr));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 600);

  unsigned is_enabled = 0;
  OK(cudaGraphNodeSetEnabled(executable, scaled, 0));
  OK(cudaGraphNodeGetEnabled(executable, scaled, &is_enabled));
  CHECK(is_enabled == 0);
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 200);

  // As one node of another graph, twice.
  cudaGraph_t outer, clone;
  cudaGraphNode_t first, second;
  OK(cudaGraphCreate(&outer, 0));
  OK(cudaGraphAddChildGraphNode(&first, outer, nullptr, 0, graph));
  OK(cudaGraphAddChildGraphNode(&second, outer, &first, 1, graph));
  OK(cudaGraphClone(&clone, outer));
  OK(cudaGraphDestroy(outer));
  OK(cudaGraphDestroy(graph));
  cudaGraphExec_t twice;
  OK(cudaGraphInstantiate(&twice, clone, 0));
  OK(cudaGraphDestroy(clone));
  calls = 0;
  OK(cudaGraphLaunch(twice, stream));
  OK(cudaGraphExecDestroy(twice));
  OK(cudaStreamSynchronize(stream));
  CHECK(host_total == 600 && calls == 2);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(x));
  OK(cudaFree(total));
  return nullptr;
}

extern "C" const char* filled() {
  unsigned short* at;
  const size_t pitch = 64;
  OK(cudaMalloc(&at, 3 * pitch));
  OK(cudaMemset(at, 0, 3 * pitch));
  cudaGraph_t graph;
  cudaGraphNode_t node;
  cudaGraphExec_t executable;
  OK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams fill = {at, pitch, 0x1234, 2, 5, 3};
  OK(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, nullptr));
  unsigned short host[3][pitch / 2];
  OK(cudaMemcpy(host, at, 3 * pitch, cudaMemcpyDeviceToHost));
  for (const auto& row : host) CHECK(row[0] == 0x1234 && row[4] == 0x1234 && row[5] == 0);
  fill.elementSize = 3;
  OK(cudaGraphExecMemsetNodeSetParams(executable, node, &fill));
  CHECK(cudaGraphLaunch(executable, nullptr) == cudaErrorInvalidValue);
  cudaGetLastError();
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  return nullptr;
}

extern "C" const char* refused_nodes() {
  cudaGraph_t graph, other;
  cudaGraphNode_t node, second, foreign;
  cudaGraphExec_t executable;
  CHECK(cudaGraphCreate(nullptr, 0) == cudaErrorInvalidValue);
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphCreate(&other, 0));
  OK(cudaGraphAddEmptyNode(&foreign, other, nullptr, 0));
  CHECK(cudaGraphAddEmptyNode(&node, graph, &foreign, 1) == cudaErrorInvalidValue);
  CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 1) == cudaErrorInvalidValue);
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, nullptr) == cudaErrorInvalidValue);
  cudaKernelNodeParams params = {};
  params.func = &graph;
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params) == cudaErrorInvalidDeviceFunction);
  OK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&second, graph, &node, 1));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphExecUpdate(executable, other, nullptr, nullptr) == cudaErrorGraphExecUpdateFailure);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphAddDependencies(graph, &second, &node, nullptr, 1));
  CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaErrorInvalidValue);  // each waits for the other
  cudaGraphNode_t from[2], to[2], before;
  size_t count = 2;
  OK(cudaGraphGetEdges(graph, from, to, nullptr, &count));
  CHECK(count == 2 && from[0] == second && to[0] == node && from[1] == node && to[1] == second);
  count = 1;
  OK(cudaGraphNodeGetDependencies(node, &before, nullptr, &count));
  CHECK(count == 1 && before == second);
  OK(cudaGraphDestroyNode(second));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(other));
  cudaGetLastError();
  return nullptr;
}

// Parameters of nodes are read and set, in a graph and in what was made of it.
extern "C" const char* changed() {
  int *x, *y, calls = 0, others = 0;
  OK(cudaMalloc(&x, 4 * sizeof(int)));
  OK(cudaMalloc(&y, 4 * sizeof(int)));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaEvent_t first, second, found;
  OK(cudaEventCreate(&first));
  OK(cudaEventCreate(&second));
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t fill, copy, told, record, wait;
  const cudaMemsetParams ones = {x, 0, 0x01010101, 4, 4, 1};
  OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &ones));
  OK(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, y, x, 4 * sizeof(int), cudaMemcpyDeviceToDevice));
  const cudaHostNodeParams call = {count_call, &calls};
  OK(cudaGraphAddHostNode(&told, graph, &copy, 1, &call));
  OK(cudaGraphAddEventRecordNode(&record, graph, &told, 1, first));
  OK(cudaGraphAddEventWaitNode(&wait, graph, &record, 1, first));

  cudaMemsetParams was_filled;
  OK(cudaGraphMemsetNodeGetParams(fill, &was_filled));
  CHECK(was_filled.dst == x && was_filled.value == 0x01010101);
  cudaMemcpy3DParms was_copied;
  OK(cudaGraphMemcpyNodeGetParams(copy, &was_copied));
  CHECK(was_copied.dstPtr.ptr == y && was_copied.srcPtr.ptr == x &&
        was_copied.extent.width == 4 * sizeof(int));
  cudaHostNodeParams was_called;
  OK(cudaGraphHostNodeGetParams(told, &was_called));
  CHECK(was_called.fn == count_call && was_called.userData == &calls);
  OK(cudaGraphEventRecordNodeGetEvent(record, &found));
  CHECK(found == first);
  OK(cudaGraphEventWaitNodeGetEvent(wait, &found));
  CHECK(found == first);
  CHECK(cudaGraphMemsetNodeGetParams(copy, &was_filled) == cudaErrorInvalidValue);
  CHECK(cudaGraphMemsetNodeGetParams(fill, nullptr) == cudaErrorInvalidValue);

  was_filled.value = 0x02020202;
  OK(cudaGraphMemsetNodeSetParams(fill, &was_filled));
  OK(cudaGraphMemcpyNodeSetParams1D(copy, y + 1, x, sizeof(int), cudaMemcpyDeviceToDevice));
  was_called.userData = &others;
  OK(cudaGraphHostNodeSetParams(told, &was_called));
  OK(cudaGraphEventRecordNodeSetEvent(record, second));
  OK(cudaGraphEventWaitNodeSetEvent(wait, second));
  cudaGraphExec_t executable;
  cudaGraphInstantiateParams how = {};
  OK(cudaGraphInstantiateWithParams(&executable, graph, &how));
  CHECK(how.result_out == cudaGraphInstantiateSuccess);
  int host[4] = {7, 7, 7, 7};
  OK(cudaMemcpy(y, host, sizeof(host), cudaMemcpyHostToDevice));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy(host, y, sizeof(host), cudaMemcpyDeviceToHost));
  CHECK(host[0] == 7 && host[1] == 0x02020202 && host[2] == 7);
  CHECK(calls == 0 && others == 1);
  OK(cudaEventQuery(second));
  OK(cudaGraphExecEventRecordNodeSetEvent(executable, record, first));
  OK(cudaGraphExecEventWaitNodeSetEvent(executable, wait, first));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(others == 2);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaFree(x));
  OK(cudaFree(y));
  return nullptr;
}

// What is asked of a device, a stream, a kernel and a pool.
extern "C" const char* asked() {
  unsigned long long bytes = 1;
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &bytes));
  CHECK(bytes == 0);
  CHECK(cudaDeviceGetGraphMemAttribute(1000, cudaGraphMemAttrUsedMemHigh, &bytes) == cudaErrorInvalidDevice);
  OK(cudaDeviceGraphMemTrim(0));
  cudaFuncCache cache;
  cudaSharedMemConfig banks;
  OK(cudaDeviceGetCacheConfig(&cache));
  OK(cudaDeviceGetSharedMemConfig(&banks));
  CHECK(cudaDeviceGetCacheConfig(nullptr) == cudaErrorInvalidValue);
  int grid = 0, block = 0, limited = 0;
  OK(cudaOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, scale, 0, 0, 0u));
  OK(cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(
      &grid, &limited, scale, [](int) { return 0; }, 64));
  CHECK(grid > 0 && block > 64 && limited == 64);
  cudaStream_t stream;
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1));
  cudaStreamAttrValue value;
  OK(cudaStreamGetAttribute(stream, cudaStreamAttributePriority, &value));
  CHECK(value.priority == -1);
  cudaMemLocation place = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool, own;
  OK(cudaMemGetDefaultMemPool(&pool, &place, cudaMemAllocationTypePinned));
  OK(cudaDeviceGetDefaultMemPool(&own, 0));
  cudaMemAccessFlags access;
  OK(cudaMemPoolGetAccess(&access, pool, &place));
  CHECK(pool == own && access == cudaMemAccessFlagsProtReadWrite);

  int *x, host[6] = {1, 2, 3, 4, 5, 6}, back[6] = {};
  OK(cudaMalloc(&x, sizeof(host)));
  cudaMemcpy3DPeerParms box = {};
  box.srcPtr = make_cudaPitchedPtr(host, 3 * sizeof(int), 3, 2);
  box.dstPtr = make_cudaPitchedPtr(x, 3 * sizeof(int), 3, 2);
  box.extent = make_cudaExtent(3 * sizeof(int), 2, 1);
  OK(cudaMemcpy3DPeer(&box));
  OK(cudaMemcpy(back, x, sizeof(back), cudaMemcpyDeviceToHost));
  CHECK(back[5] == 6);
  CHECK(cudaMemcpy3DPeer(nullptr) == cudaErrorInvalidValue);
  int far[2] = {};
  void* to[] = {&far[0], &far[1]};
  const void* from[] = {x + 1, x + 4};
  const size_t each[] = {sizeof(int), sizeof(int)};
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first_of = 0;
  OK(cudaMemcpyBatchAsync(to, from, each, 2, &attributes, &first_of, 1, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(far[0] == 2 && far[1] == 5);
  CHECK(cudaMemcpyBatchAsync(to, from, each, 2, &attributes, &first_of, 3, stream) == cudaErrorInvalidValue);
  void* function = x;
  cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, 0, &status));
  CHECK(function == nullptr && status == cudaDriverEntryPointSymbolNotFound);
  OK(cudaFree(x));
  OK(cudaStreamDestroy(stream));
  return nullptr;
}
