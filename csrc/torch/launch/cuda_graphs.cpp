// Graphs by CUDA's runtime library: those of torch.cuda.CUDAGraph, captured from any stream of the program,
// and those that are put together node by node, whose launch issues the nodes. Nodes of the former cannot be
// changed, and nodes that allocate or decide are not there.
#include <c10/core/StreamGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "torch/dispatch/graph.h"
#include "torch/launch/runtime_calls.h"

using namespace loom::glue;
using loom::runtime::CommandKind;
using loom::runtime::Node;
using loom::runtime::StreamRef;

struct CUgraphNode_st {
  cudaGraphNodeType type;
  std::shared_ptr<const loom_cuda_graph_work> work;  // null where it was captured
  std::vector<CUgraphNode_st*> after;
  CUgraph_st* graph;
};
struct CUgraph_st {
  std::shared_ptr<LoomGraph> captured;  // null if it is put together
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  struct Step {
    const CUgraphNode_st* node;  // by which the program names it
    cudaGraphNodeType type;
    std::shared_ptr<const loom_cuda_graph_work> work;
    std::vector<size_t> after;  // steps
    bool is_enabled = true;
  };
  // Of a node that was added by itself, which may be gone; null if there is none.
  Step* find(const CUgraphNode_st* node) {
    const auto step =
        std::find_if(steps.begin(), steps.end(), [&](const Step& each) { return each.node == node; });
    return step == steps.end() ? nullptr : &*step;
  }
  std::shared_ptr<LoomGraph> captured;
  std::vector<Step> steps;  // in the order of their launch
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
                                                       second.end(), [](const Node& each, const Node& other) {
                                                         return each.kind == other.kind &&
                                                                each.after == other.after;
                                                       });
}

bool have_same_nodes(const CUgraphExec_st& left, const CUgraphExec_st& right) {
  if ((left.captured == nullptr) != (right.captured == nullptr)) return false;
  if (left.captured != nullptr) return have_same_nodes(*left.captured, *right.captured);
  return std::equal(left.steps.begin(), left.steps.end(), right.steps.begin(), right.steps.end(),
                    [](const auto& item, const auto& other) {
                      return item.type == other.type && item.after == other.after;
                    });
}

cudaGraphNodeType type_of(CommandKind kind) {
  return kind == CommandKind::kKernel ? cudaGraphNodeTypeKernel
         : kind == CommandKind::kCopy ? cudaGraphNodeTypeMemcpy
                                      : cudaGraphNodeTypeMemset;
}

bool has_node(const CUgraph_st& graph, const CUgraphNode_st* node) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const auto& each) { return each.get() == node; });
}

// Takes what the node does, also where it is refused.
std::shared_ptr<const loom_cuda_graph_work> owned(const loom_cuda_graph_work& work) {
  return {new loom_cuda_graph_work(work), [](const loom_cuda_graph_work* own) {
            own->release(own->own);
            delete own;
          }};
}

// The steps of a graph, each behind those that it waits for: in the order of the nodes where that is one.
// Empty where nodes wait for one another.
std::vector<CUgraphExec_st::Step> ordered(const CUgraph_st& graph) {
  std::vector<CUgraphExec_st::Step> steps;
  std::map<const CUgraphNode_st*, size_t> places;
  for (bool has_moved = true; has_moved && steps.size() < graph.nodes.size();) {
    has_moved = false;
    for (const auto& node : graph.nodes) {
      const auto is_placed = [&](const CUgraphNode_st* item) { return places.count(item) != 0; };
      if (is_placed(node.get()) || !std::all_of(node->after.begin(), node->after.end(), is_placed)) continue;
      std::vector<size_t> after;
      for (const CUgraphNode_st* each : node->after) after.push_back(places[each]);
      std::sort(after.begin(), after.end());
      places[node.get()] = steps.size();
      steps.push_back({node.get(), node->type, node->work, std::move(after)});
      has_moved = true;
    }
  }
  if (steps.size() < graph.nodes.size()) steps.clear();
  return steps;
}

// Gives as many nodes as there is room for, or their number.
template <typename Nodes>
cudaError_t give(const Nodes& kept, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes == nullptr) {
    *count = kept.size();
    return cudaSuccess;
  }
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < kept.size() ? &*kept[i] : nullptr;
  *count = std::min(*count, kept.size());
  return cudaSuccess;
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
    auto made = std::make_unique<CUgraph_st>(CUgraph_st{graph, {}});
    for (const Node& node : graph->recording()->nodes()) {
      made->nodes.push_back(
          std::make_unique<CUgraphNode_st>(CUgraphNode_st{type_of(node.kind), nullptr, {}, made.get()}));
      for (const auto before : node.after) made->nodes.back()->after.push_back(made->nodes[before].get());
    }
    *result = made.release();
  });
  return error != cudaSuccess || was_captured ? error : refuse(cudaErrorIllegalState);
}

cudaError_t cudaGraphCreate(cudaGraph_t* result, unsigned flags) {
  if (result == nullptr || flags != 0) return refuse(cudaErrorInvalidValue);
  *result = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t loom_cuda_graph_add(cudaGraphNode_t* result, cudaGraph_t graph, const cudaGraphNode_t* after,
                                size_t count, cudaGraphNodeType type, loom_cuda_graph_work given) {
  auto work = owned(given);
  if (result == nullptr || graph == nullptr || (after == nullptr && count != 0)) {
    return refuse(cudaErrorInvalidValue);
  }
  if (graph->captured != nullptr) return refuse(cudaErrorNotSupported);
  if (!std::all_of(after, after + count, [&](cudaGraphNode_t node) { return has_node(*graph, node); })) {
    return refuse(cudaErrorInvalidValue);
  }
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{type, std::move(work), std::vector<CUgraphNode_st*>(after, after + count), graph}));
  *result = graph->nodes.back().get();
  return cudaSuccess;
}
cudaError_t loom_cuda_graph_set(cudaGraphExec_t executable, cudaGraphNode_t node, cudaGraphNodeType type,
                                loom_cuda_graph_work given) {
  auto work = owned(given);
  if (node == nullptr) return refuse(cudaErrorInvalidValue);
  if (executable == nullptr) {
    if (node->work == nullptr || node->type != type) return refuse(cudaErrorInvalidValue);
    node->work = std::move(work);
    return cudaSuccess;
  }
  auto* const step = executable->find(node);
  if (step == nullptr || step->type != type) return refuse(cudaErrorInvalidValue);
  step->work = std::move(work);
  return cudaSuccess;
}
const void* loom_cuda_graph_work_of(cudaGraphNode_t node, cudaGraphNodeType type) {
  return node == nullptr || node->work == nullptr || node->type != type ? nullptr : node->work->own;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, size_t count) {
  if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
    return refuse(cudaErrorInvalidValue);
  }
  if (graph->captured != nullptr) return refuse(cudaErrorNotSupported);
  for (size_t i = 0; i < count; ++i) {
    if (!has_node(*graph, from[i]) || !has_node(*graph, to[i])) return refuse(cudaErrorInvalidValue);
  }
  for (size_t i = 0; i < count; ++i) to[i]->after.push_back(from[i]);
  return cudaSuccess;
}

cudaError_t loom_cuda_graph_instantiate(cudaGraphExec_t* result, cudaGraph_t graph) {
  if (result == nullptr || graph == nullptr) return refuse(cudaErrorInvalidValue);
  auto made = std::make_unique<CUgraphExec_st>();
  if (graph->captured == nullptr) {
    made->steps = ordered(*graph);
    if (made->steps.size() < graph->nodes.size()) return refuse(cudaErrorInvalidValue);
  }
  made->captured = graph->captured;
  return numbered([&] {
    if (made->captured != nullptr) made->captured->instantiate();
    *result = made.release();
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  if (graph->captured == nullptr) {
    for (const auto& step : graph->steps) {
      if (!step.is_enabled) continue;
      if (const cudaError_t error = step.work->issue(step.work->own, handle); error != cudaSuccess)
        return error;
    }
    return cudaSuccess;
  }
  return on_stream(handle, [&](StreamRef stream) {
    const c10::StreamGuard current(torch_stream(stream));
    graph->captured->replay();
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t handle) {
  if (graph == nullptr) return refuse(cudaErrorInvalidValue);
  return on_stream(handle, [](StreamRef) {});
}
cudaError_t loom_cuda_graph_update(cudaGraphExec_t graph, cudaGraph_t other) {
  if (graph == nullptr || other == nullptr) return refuse(cudaErrorInvalidValue);
  CUgraphExec_st changed{other->captured, {}};
  if (other->captured == nullptr) changed.steps = ordered(*other);
  if (!have_same_nodes(*graph, changed)) return refuse(cudaErrorGraphExecUpdateFailure);
  graph->captured = changed.captured;
  // The program names its nodes as before.
  for (size_t i = 0; i < changed.steps.size(); ++i) graph->steps[i].work = std::move(changed.steps[i].work);
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
  auto made = std::make_unique<CUgraph_st>();
  made->captured = graph->captured;
  std::map<const CUgraphNode_st*, CUgraphNode_st*> copies;
  for (const auto& node : graph->nodes) {
    made->nodes.push_back(std::make_unique<CUgraphNode_st>(*node));
    made->nodes.back()->graph = made.get();
    copies[node.get()] = made->nodes.back().get();
  }
  for (const auto& node : made->nodes) {
    for (CUgraphNode_st*& before : node->after) before = copies.at(before);
  }
  *result = made.release();
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (graph == nullptr || count == nullptr) return refuse(cudaErrorInvalidValue);
  return give(graph->nodes, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (graph == nullptr || count == nullptr) return refuse(cudaErrorInvalidValue);
  std::vector<CUgraphNode_st*> roots;
  for (const auto& node : graph->nodes) {
    if (node->after.empty()) roots.push_back(node.get());
  }
  return give(roots, nodes, count);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* found, size_t* count) {
  if (node == nullptr || count == nullptr) return refuse(cudaErrorInvalidValue);
  return give(node->after, found, count);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, size_t* count) {
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr)) {
    return refuse(cudaErrorInvalidValue);
  }
  std::vector<CUgraphNode_st*> begins, ends;
  for (const auto& node : graph->nodes) {
    begins.insert(begins.end(), node->after.begin(), node->after.end());
    ends.resize(begins.size(), node.get());
  }
  size_t room = *count;
  give(ends, to, &room);
  return give(begins, from, count);
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned is_enabled) {
  auto* const step = executable == nullptr ? nullptr : executable->find(node);
  if (step == nullptr) return refuse(cudaErrorInvalidValue);
  step->is_enabled = is_enabled != 0;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned* is_enabled) {
  auto* const step = executable == nullptr ? nullptr : executable->find(node);
  if (step == nullptr || is_enabled == nullptr) return refuse(cudaErrorInvalidValue);
  *is_enabled = step->is_enabled ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  if (node == nullptr) return refuse(cudaErrorInvalidValue);
  if (node->graph->captured != nullptr) return refuse(cudaErrorNotSupported);
  auto& nodes = node->graph->nodes;
  for (const auto& other : nodes) std::erase(other->after, node);
  std::erase_if(nodes, [&](const auto& each) { return each.get() == node; });
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  if (node == nullptr || type == nullptr) return refuse(cudaErrorInvalidValue);
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  if (graph == nullptr || path == nullptr) return refuse(cudaErrorInvalidValue);
  if (graph->captured == nullptr) return refuse(cudaErrorNotSupported);
  return numbered([&] {
    graph->captured->enable_debug_mode();
    graph->captured->debug_dump(path);
  });
}
