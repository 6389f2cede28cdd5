// Graphs as PyTorch knows them: torch.accelerator.Graph and torch.loom.CUDAGraph are this.
#pragma once

#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/capture.h"
#include "runtime/worlds.h"
#include "torch/engine/generator.h"

namespace loom::glue {

class LoomGraph final : public at::GraphImplInterface, public GraphRandom {
 public:
  explicit LoomGraph(const at::GraphImplArgs& args) : keeps_graph_(args.keep_graph) {}
  ~LoomGraph() override;
  LoomGraph(const LoomGraph&) = delete;
  LoomGraph& operator=(const LoomGraph&) = delete;

  // On the current stream of the current device. {0, 0}: a pool of its own. Default mode: global.
  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;
  // On the current stream of the device that the capture began on.
  void replay() override;
  void reset() override;
  at::MempoolId_t pool() const override;
  void enable_debug_mode() override { is_debugged_ = true; }
  // Null until the capture has ended.
  const runtime::Recording* recording() const { return recording_.get(); }
  // The device that the capture began on.
  int device() const { return device_; }
  // Whether the program sees the devices of the capture: not while a dry run has begun or ended since.
  bool is_seen() const;
  // Whether a replay writes to the memory.
  bool writes_to(const void* begin, size_t bytes) const;
  // Writes the nodes and their dependencies as Graphviz's DOT; only in debug mode.
  void debug_dump(const std::string& path) override;

  // Ops captured from now on may draw numbers from the generator; each replay takes them from where it is
  // then. The default generators are registered as they are used.
  void register_generator(const at::Generator& generator);
  uint64_t* offset_of(const RandomState& state) override;
  // For an op that is captured and draws from `generator`.
  CapturedDraw draw_from(const at::Generator& generator, const char* op_name, uint64_t step);

 private:
  friend class EngineReplay;
  struct Source {
    std::shared_ptr<RandomState> state;
    std::shared_ptr<CapturedRandom> random;
    std::shared_ptr<void> memory;  // of CUDA's graphs
    uint64_t offset = 0;           // how far a replay moves the state's
    bool is_drawn = false;         // whether the graph draws from it
  };
  Source* find(const RandomState& state);
  void forget_recording() noexcept;

  const bool keeps_graph_;
  bool is_debugged_ = false;
  int device_ = -1;
  int64_t stream_ = 0;              // that the capture began on
  runtime::Device* own_ = nullptr;  // the device of that index where the capture began
  runtime::worlds::Pin pin_;        // which must be there for as long as the graph is
  runtime::PoolId pool_{0, 0};      // {0, 0}: none is in use
  runtime::CaptureRef capture_;
  std::shared_ptr<const runtime::Recording> recording_;
  std::unique_ptr<runtime::ReplayQueue> queue_;  // null until instantiated
  std::vector<Source> sources_;
};

// The draw of an op that is being captured on the current stream of `device`. Throws when the generator is
// not registered with the graph.
CapturedDraw captured_draw(const at::Generator& generator, int device, const char* op_name, uint64_t step);

// Makes torch.accelerator.Graph find it, under the device's name.
void register_graph_impl();

}  // namespace loom::glue
