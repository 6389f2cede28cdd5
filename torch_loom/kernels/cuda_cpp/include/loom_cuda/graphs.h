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
// A row of bytes, as a box.
static inline cudaMemcpy3DParms row_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  copy.dstPtr = {to, bytes, bytes, 1};
  copy.extent = {bytes, 1, 1};
  copy.kind = kind;
  return copy;
}
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
// Gives a graph's own node another struct of parameters, or says which it has.
template <typename Own, typename Params>
static inline cudaError_t set_own_node(cudaGraphNode_t node, cudaGraphNodeType type, const Params* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  return loom_cuda_graph_set(nullptr, node, type, work_of(new Own{*params}));
}
template <typename Own, typename Params>
static inline cudaError_t get_node(cudaGraphNode_t node, cudaGraphNodeType type, Params Own::* member,
                                   Params* params) {
  const void* const own = loom_cuda_graph_work_of(node, type);
  if (own == nullptr || params == nullptr) return cudaErrorInvalidValue;
  *params = static_cast<const Own*>(own)->*member;
  return cudaSuccess;
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
enum cudaGraphInstantiateResult {
  cudaGraphInstantiateSuccess = 0,
  cudaGraphInstantiateError = 1,
  cudaGraphInstantiateInvalidStructure = 2,
  cudaGraphInstantiateNodeOperationNotSupported = 3,
  cudaGraphInstantiateMultipleDevicesNotSupported = 4,
  cudaGraphInstantiateConditionalHandleUnused = 5
};
struct cudaGraphInstantiateParams {
  unsigned long long flags;
  cudaStream_t uploadStream;
  cudaGraphNode_t errNode_out;
  cudaGraphInstantiateResult result_out;
};
static inline cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                         cudaGraphInstantiateParams* params) {
  if (params == nullptr) return cudaErrorInvalidValue;
  const cudaError_t error = loom_cuda_graph_instantiate(executable, graph);
  params->errNode_out = nullptr;
  params->result_out = error == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
  return error;
}
// A device keeps no memory for graphs: theirs is that of their own allocations.
enum cudaGraphMemAttributeType {
  cudaGraphMemAttrUsedMemCurrent = 0,
  cudaGraphMemAttrUsedMemHigh = 1,
  cudaGraphMemAttrReservedMemCurrent = 2,
  cudaGraphMemAttrReservedMemHigh = 3
};
static inline cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType, void* value) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return error;
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  if (value == nullptr) return cudaErrorInvalidValue;
  *static_cast<unsigned long long*>(value) = 0;
  return cudaSuccess;
}
static inline cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                                         void* value) {
  unsigned long long now;
  return value == nullptr ? cudaErrorInvalidValue : cudaDeviceGetGraphMemAttribute(device, attribute, &now);
}
static inline cudaError_t cudaDeviceGraphMemTrim(int device) {
  unsigned long long now;
  return cudaDeviceGetGraphMemAttribute(device, cudaGraphMemAttrUsedMemCurrent, &now);
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
  const cudaMemcpy3DParms copy = loom_cuda::row_copy(to, from, bytes, kind);
  return cudaGraphAddMemcpyNode(node, graph, after, count, &copy);
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
  const cudaMemcpy3DParms copy = loom_cuda::row_copy(to, from, bytes, kind);
  return cudaGraphExecMemcpyNodeSetParams(executable, node, &copy);
}
static inline cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                           const cudaMemsetParams* params) {
  return loom_cuda::set_node<loom_cuda::FillNode>(executable, node, cudaGraphNodeTypeMemset, params);
}
static inline cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                         const cudaHostNodeParams* params) {
  return loom_cuda::set_node<loom_cuda::HostNode>(executable, node, cudaGraphNodeTypeHost, params);
}

static inline cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable,
                                                               cudaGraphNode_t node, cudaEvent_t event) {
  return loom_cuda::set_node<loom_cuda::RecordNode>(executable, node, cudaGraphNodeTypeEventRecord, &event);
}
static inline cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                             cudaEvent_t event) {
  return loom_cuda::set_node<loom_cuda::WaitNode>(executable, node, cudaGraphNodeTypeWaitEvent, &event);
}

static inline cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* params) {
  return loom_cuda::get_node(node, cudaGraphNodeTypeMemcpy, &loom_cuda::CopyNode::copy, params);
}
static inline cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                                       const cudaMemcpy3DParms* params) {
  return loom_cuda::set_own_node<loom_cuda::CopyNode>(node, cudaGraphNodeTypeMemcpy, params);
}
static inline cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from,
                                                         size_t bytes, cudaMemcpyKind kind) {
  const cudaMemcpy3DParms copy = loom_cuda::row_copy(to, from, bytes, kind);
  return cudaGraphMemcpyNodeSetParams(node, &copy);
}
static inline cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  return loom_cuda::get_node(node, cudaGraphNodeTypeMemset, &loom_cuda::FillNode::fill, params);
}
static inline cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* params) {
  return loom_cuda::set_own_node<loom_cuda::FillNode>(node, cudaGraphNodeTypeMemset, params);
}
static inline cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* params) {
  return loom_cuda::get_node(node, cudaGraphNodeTypeHost, &loom_cuda::HostNode::call, params);
}
static inline cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* params) {
  return loom_cuda::set_own_node<loom_cuda::HostNode>(node, cudaGraphNodeTypeHost, params);
}
static inline cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return loom_cuda::get_node(node, cudaGraphNodeTypeEventRecord, &loom_cuda::RecordNode::event, event);
}
static inline cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return loom_cuda::set_own_node<loom_cuda::RecordNode>(node, cudaGraphNodeTypeEventRecord, &event);
}
static inline cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return loom_cuda::get_node(node, cudaGraphNodeTypeWaitEvent, &loom_cuda::WaitNode::event, event);
}
static inline cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return loom_cuda::set_own_node<loom_cuda::WaitNode>(node, cudaGraphNodeTypeWaitEvent, &event);
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
