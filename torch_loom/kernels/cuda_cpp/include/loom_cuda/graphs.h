// Graphs of captured streams, and graphs that are put together node by node. A launch of the latter issues
// their nodes one after another, in an order that their dependencies allow: copies read host memory then, as
// on a GPU.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "loom_cuda/kernel_addresses.h"
#include "loom_cuda/pitched_memory.h"
#include "loom_cuda/runtime_api.h"

struct cudaKernelNodeParams {
  void* func;
  dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
};
struct cudaHostNodeParams {
  cudaHostFn_t fn;
  void* userData;
};

namespace loom_cuda {

// What a kernel node is launched with: copies, made when the node is. On the heap, where they stay.
class KernelNode {
 public:
  explicit KernelNode(const cudaKernelNodeParams& given) : params_(given) {
    const ParameterSizes sizes = kernel_addresses().parameters(given.func);
    is_known_ = given.extra == nullptr && sizes.bytes != nullptr &&
                (sizes.count == 0 || given.kernelParams != nullptr);
    for (size_t i = 0; is_known_ && i < sizes.count; ++i) {
      const auto* const value = static_cast<const char*>(given.kernelParams[i]);
      // Of any alignment that a parameter can have.
      copies_.emplace_back(new (std::align_val_t(kAlignment)) char[sizes.bytes[i]]);
      std::memcpy(copies_.back().get(), value, sizes.bytes[i]);
      values_.push_back(copies_.back().get());
    }
    params_.kernelParams = values_.data();
  }
  bool is_known() const { return is_known_; }
  const cudaKernelNodeParams& params() const { return params_; }
  cudaError_t issue(cudaStream_t stream) const {
    return cudaLaunchKernel(static_cast<const void*>(params_.func), params_.gridDim, params_.blockDim,
                            params_.kernelParams, params_.sharedMemBytes, stream);
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t(kAlignment)); }
  };
  cudaKernelNodeParams params_;
  bool is_known_ = false;
  std::vector<std::unique_ptr<char, Free>> copies_;
  std::vector<void*> values_;
};

struct CopyNode {
  cudaMemcpy3DParms copy;
  cudaError_t issue(cudaStream_t stream) const { return cudaMemcpy3DAsync(&copy, stream); }
};
struct Copy1DNode {
  void* to;
  const void* from;
  size_t bytes;
  cudaMemcpyKind kind;
  cudaError_t issue(cudaStream_t stream) const { return cudaMemcpyAsync(to, from, bytes, kind, stream); }
};
struct FillNode {
  cudaMemsetParams fill;
  cudaError_t issue(cudaStream_t stream) const { return loom_cuda_fill(&fill, stream); }
};
struct HostNode {
  cudaHostNodeParams call;
  cudaError_t issue(cudaStream_t stream) const { return cudaLaunchHostFunc(stream, call.fn, call.userData); }
};
struct RecordNode {
  cudaEvent_t event;
  cudaError_t issue(cudaStream_t stream) const { return cudaEventRecord(event, stream); }
};
struct WaitNode {
  cudaEvent_t event;
  cudaError_t issue(cudaStream_t stream) const { return cudaStreamWaitEvent(stream, event, 0); }
};
struct EmptyNode {
  cudaError_t issue(cudaStream_t) const { return cudaSuccess; }
};
struct ChildNode {
  cudaGraphExec_t graph;
  cudaError_t issue(cudaStream_t stream) const { return cudaGraphLaunch(graph, stream); }
  ~ChildNode() { cudaGraphExecDestroy(graph); }
};

template <typename Own>
static inline loom_cuda_graph_work work_of(Own* node) {
  return {node,
          [](const void* own, cudaStream_t stream) { return static_cast<const Own*>(own)->issue(stream); },
          [](void* own) { delete static_cast<Own*>(own); }};
}
// Gives `use` a kernel's launch, unless it is of no kernel.
template <typename Use>
static inline cudaError_t with_kernel(const cudaKernelNodeParams* params, Use&& use) {
  if (params == nullptr) return cudaErrorInvalidValue;
  auto node = std::make_unique<KernelNode>(*params);
  if (!node->is_known()) return params->extra ? cudaErrorNotSupported : cudaErrorInvalidDeviceFunction;
  return use(work_of(node.release()));
}
// Adds a node of a struct of parameters, or gives an executable graph's node another one.
template <typename Own, typename Params>
static inline cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, cudaGraphNodeType type, const Params* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  return loom_cuda_graph_add(node, graph, after, count, type, work_of(new Own{*params}));
}
template <typename Own, typename Params>
static inline cudaError_t set_node(cudaGraphExec_t executable, cudaGraphNode_t node, cudaGraphNodeType type,
                                   const Params* params) {
  if (executable == nullptr || params == nullptr) return cudaErrorInvalidValue;
  return loom_cuda_graph_set(executable, node, type, work_of(new Own{*params}));
}

}  // namespace loom_cuda

static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                               unsigned long long = 0) {
  return loom_cuda_graph_instantiate(executable, graph);
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                               cudaGraphNode_t*, char*, size_t) {
  return loom_cuda_graph_instantiate(executable, graph);
}
static inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                        unsigned long long = 0) {
  return loom_cuda_graph_instantiate(executable, graph);
}
enum cudaGraphExecUpdateResult { cudaGraphExecUpdateSuccess = 0, cudaGraphExecUpdateError = 1 };
struct cudaGraphExecUpdateResultInfo {
  cudaGraphExecUpdateResult result;
  cudaGraphNode_t errorNode, errorFromNode;
};
static inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                              cudaGraphNode_t* node, cudaGraphExecUpdateResult* result) {
  const cudaError_t error = loom_cuda_graph_update(executable, graph);
  if (node != nullptr) *node = nullptr;
  if (result != nullptr)
    *result = error == cudaSuccess ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateError;
  return error;
}
static inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                              cudaGraphExecUpdateResultInfo* info) {
  cudaGraphExecUpdateResult result;
  const cudaError_t error = cudaGraphExecUpdate(executable, graph, nullptr, &result);
  if (info != nullptr) *info = {result, nullptr, nullptr};
  return error;
}

static inline cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                 const cudaGraphNode_t* after, size_t count,
                                                 const cudaKernelNodeParams* params) {
  return loom_cuda::with_kernel(params, [&](loom_cuda_graph_work work) {
    return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeKernel, work);
  });
}
static inline cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                 const cudaGraphNode_t* after, size_t count,
                                                 const cudaMemcpy3DParms* params) {
  return loom_cuda::add_node<loom_cuda::CopyNode>(node, graph, after, count, cudaGraphNodeTypeMemcpy, params);
}
static inline cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                                   const cudaGraphNode_t* after, size_t count, void* to,
                                                   const void* from, size_t bytes, cudaMemcpyKind kind) {
  return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeMemcpy,
                             loom_cuda::work_of(new loom_cuda::Copy1DNode{to, from, bytes, kind}));
}
static inline cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                 const cudaGraphNode_t* after, size_t count,
                                                 const cudaMemsetParams* params) {
  return loom_cuda::add_node<loom_cuda::FillNode>(node, graph, after, count, cudaGraphNodeTypeMemset, params);
}
static inline cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, size_t count,
                                               const cudaHostNodeParams* params) {
  return loom_cuda::add_node<loom_cuda::HostNode>(node, graph, after, count, cudaGraphNodeTypeHost, params);
}
static inline cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                      const cudaGraphNode_t* after, size_t count,
                                                      cudaEvent_t event) {
  return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeEventRecord,
                             loom_cuda::work_of(new loom_cuda::RecordNode{event}));
}
static inline cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                    const cudaGraphNode_t* after, size_t count,
                                                    cudaEvent_t event) {
  return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeWaitEvent,
                             loom_cuda::work_of(new loom_cuda::WaitNode{event}));
}
static inline cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                const cudaGraphNode_t* after, size_t count) {
  return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeEmpty,
                             loom_cuda::work_of(new loom_cuda::EmptyNode{}));
}
// The child is taken as it is now.
static inline cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                     const cudaGraphNode_t* after, size_t count,
                                                     cudaGraph_t child) {
  cudaGraphExec_t executable;
  const cudaError_t error = loom_cuda_graph_instantiate(&executable, child);
  if (error != cudaSuccess) return error;
  return loom_cuda_graph_add(node, graph, after, count, cudaGraphNodeTypeGraph,
                             loom_cuda::work_of(new loom_cuda::ChildNode{executable}));
}

static inline cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  const void* const own = loom_cuda_graph_work_of(node, cudaGraphNodeTypeKernel);
  if (own == nullptr || params == nullptr) return cudaErrorInvalidValue;
  *params = static_cast<const loom_cuda::KernelNode*>(own)->params();
  return cudaSuccess;
}
static inline cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                       const cudaKernelNodeParams* params) {
  return loom_cuda::with_kernel(params, [&](loom_cuda_graph_work work) {
    return loom_cuda_graph_set(nullptr, node, cudaGraphNodeTypeKernel, work);
  });
}
static inline cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                           const cudaKernelNodeParams* params) {
  if (executable == nullptr) return cudaErrorInvalidValue;
  return loom_cuda::with_kernel(params, [&](loom_cuda_graph_work work) {
    return loom_cuda_graph_set(executable, node, cudaGraphNodeTypeKernel, work);
  });
}
static inline cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                           const cudaMemcpy3DParms* params) {
  return loom_cuda::set_node<loom_cuda::CopyNode>(executable, node, cudaGraphNodeTypeMemcpy, params);
}
static inline cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                             void* to, const void* from, size_t bytes,
                                                             cudaMemcpyKind kind) {
  if (executable == nullptr) return cudaErrorInvalidValue;
  return loom_cuda_graph_set(executable, node, cudaGraphNodeTypeMemcpy,
                             loom_cuda::work_of(new loom_cuda::Copy1DNode{to, from, bytes, kind}));
}
static inline cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                           const cudaMemsetParams* params) {
  return loom_cuda::set_node<loom_cuda::FillNode>(executable, node, cudaGraphNodeTypeMemset, params);
}
static inline cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                         const cudaHostNodeParams* params) {
  return loom_cuda::set_node<loom_cuda::HostNode>(executable, node, cudaGraphNodeTypeHost, params);
}

// CUDA 13 has a word about each edge: here a node waits for all of another one, which zeros say.
struct cudaGraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};
static inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                   const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                                   size_t count) {
  for (size_t i = 0; data != nullptr && i < count; ++i) {
    if (data[i].from_port != 0 || data[i].to_port != 0 || data[i].type != 0) return cudaErrorNotSupported;
  }
  return cudaGraphAddDependencies(graph, from, to, count);
}
static inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* found,
                                                       cudaGraphEdgeData* data, size_t* count) {
  const cudaError_t error = cudaGraphNodeGetDependencies(node, found, count);
  for (size_t i = 0; data != nullptr && error == cudaSuccess && i < *count; ++i) data[i] = {};
  return error;
}
static inline cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                            cudaGraphEdgeData* data, size_t* count) {
  const cudaError_t error = cudaGraphGetEdges(graph, from, to, count);
  for (size_t i = 0; data != nullptr && error == cudaSuccess && i < *count; ++i) data[i] = {};
  return error;
}
