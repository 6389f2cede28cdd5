// Graphs that are put together node by node. Each function returns null, or the text of the check that failed.
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
  OK(cudaGraphAddMemcpyNode1D(&out, graph, &added, 1, &host_total, total, sizeof(double), cudaMemcpyDeviceToHost));
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
