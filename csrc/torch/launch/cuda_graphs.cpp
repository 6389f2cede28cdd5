// Graphs by CUDA's runtime library: those of torch.cuda.CUDAGraph, captured from any stream of the program.
// Graphs that are put together node by node, and changes of single nodes, are not there.
#include <c10/core/StreamGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "torch/dispatch/graph.h"
#include "torch/launch/runtime_calls.h"

using namespace loom::glue;
using loom::runtime::CommandKind;
using loom::runtime::Node;
using loom::runtime::StreamRef;

struct CUgraph_st {
  std::shared_ptr<LoomGraph> graph;
};
struct CUgraphExec_st {
  std::shared_ptr<LoomGraph> graph;
};

namespace {

// The captures under way, by the streams that they began on.
struct Captures {
  std::mutex mutex;
  std::map<std::pair<int, int64_t>, std::shared_ptr<LoomGraph>> graphs;
};
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

std::shared_ptr<LoomGraph> take_capture(StreamRef stream) {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  auto node = captures().graphs.extract({stream.device, stream.id});
  return node.empty() ? nullptr : std::move(node.mapped());
}

at::GraphCaptureMode mode_of(cudaStreamCaptureMode mode) {
  switch (mode) {
    case cudaStreamCaptureModeThreadLocal:
      return at::GraphCaptureMode::ThreadLocal;
    case cudaStreamCaptureModeRelaxed:
      return at::GraphCaptureMode::Relaxed;
    case cudaStreamCaptureModeGlobal:
      break;
  }
  return at::GraphCaptureMode::Global;
}

// Whether one graph's commands can stand in the place of another's.
bool have_same_nodes(const LoomGraph& left, const LoomGraph& right) {
  const auto &first = left.recording()->nodes(), &second = right.recording()->nodes();
  return left.device() == right.device() && std::equal(first.begin(), first.end(), second.begin(),
                                                       second.end(), [](const Node& one, const Node& other) {
                                                         return one.kind == other.kind &&
                                                                one.after == other.after;
                                                       });
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return on_stream(handle, [&](StreamRef stream) {
    auto graph = std::make_shared<LoomGraph>(at::GraphImplArgs{/*keep_graph=*/true});
    const c10::StreamGuard current(torch_stream(stream));
    graph->capture_begin({0, 0}, mode_of(mode));
    const std::lock_guard<std::mutex> lock(captures().mutex);
    captures().graphs[{stream.device, stream.id}] = std::move(graph);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* result) {
  if (result == nullptr) return refuse(cudaErrorInvalidValue);
  *result = nullptr;
  bool was_captured = false;
  const cudaError_t error = on_stream(handle, [&](StreamRef stream) {
    const std::shared_ptr<LoomGraph> graph = take_capture(stream);
    was_captured = graph != nullptr;
    if (!was_captured) return;
    const c10::StreamGuard current(torch_stream(stream));
    graph->capture_end();
    *result = new CUgraph_st{graph};
  });
  return error != cudaSuccess || was_captured ? error : refuse(cudaErrorIllegalState);
}

cudaError_t loom_cuda_graph_instantiate(cudaGraphExec_t* result, cudaGraph_t graph) {
  if (result == nullptr || graph == nullptr) return refuse(cudaErrorInvalidValue);
  return numbered([&] {
    graph->graph->instantiate();
    *result = new CUgraphExec_st{graph->graph};
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  return on_stream(handle, [&](StreamRef stream) {
    const c10::StreamGuard current(torch_stream(stream));
    graph->graph->replay();
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t handle) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  return on_stream(handle, [](StreamRef) {});
}
cudaError_t loom_cuda_graph_update(cudaGraphExec_t graph, cudaGraph_t other) {
  if (graph == nullptr || other == nullptr) return refuse(cudaErrorInvalidValue);
  if (!have_same_nodes(*graph->graph, *other->graph)) return refuse(cudaErrorGraphExecUpdateFailure);
  graph->graph = other->graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  return numbered([&] { delete graph; });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  return numbered([&] { delete graph; });
}
cudaError_t cudaGraphClone(cudaGraph_t* result, cudaGraph_t graph) {
  if (result == nullptr || graph == nullptr) return refuse(cudaErrorInvalidValue);
  *result = new CUgraph_st{graph->graph};
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (graph == nullptr || count == nullptr) return refuse(cudaErrorInvalidValue);
  const auto& kept = graph->graph->recording()->nodes();
  if (nodes == nullptr) {
    *count = kept.size();
    return cudaSuccess;
  }
  for (size_t i = 0; i < *count; ++i) {
    auto* const node = i < kept.size() ? const_cast<Node*>(&kept[i]) : nullptr;
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(node);
  }
  *count = std::min(*count, kept.size());
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  if (node == nullptr || type == nullptr) return refuse(cudaErrorInvalidValue);
  const CommandKind kind = reinterpret_cast<const Node*>(node)->kind;
  *type = kind == CommandKind::kKernel ? cudaGraphNodeTypeKernel
          : kind == CommandKind::kCopy ? cudaGraphNodeTypeMemcpy
                                       : cudaGraphNodeTypeMemset;
  return cudaSuccess;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  if (graph == nullptr || path == nullptr) return refuse(cudaErrorInvalidValue);
  return numbered([&] {
    graph->graph->enable_debug_mode();
    graph->graph->debug_dump(path);
  });
}
