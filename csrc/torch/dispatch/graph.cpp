#include "torch/dispatch/graph.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <utility>

#include "torch/core/device.h"
#include "torch/core/device_memory.h"
#include "torch/dispatch/queued_op.h"
#include "torch/memory/workspaces.h"

namespace loom::glue {

// Runs a graph's ops with what they need of their thread, and with the random numbers that are its replay's.
class EngineReplay final : public runtime::Replay {
 public:
  explicit EngineReplay(const LoomGraph& graph) : Replay(graph.recording_) {
    for (const LoomGraph::Source& source : graph.sources_) {
      const CapturedRandom start = take(*source.state, source.offset);
      if (source.is_drawn) starts_.push_back({source.random, start});
    }
  }

  void run() override {
    for (const Start& start : starts_) *start.target = start.from;
    const QueuedOpScope scope(/*keeps_threads=*/false);
    Replay::run();
  }

 private:
  struct Start {
    std::shared_ptr<CapturedRandom> target;
    CapturedRandom from;
  };
  c10::SmallVector<Start, 2> starts_;
};

namespace {

runtime::CaptureMode mode_of(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return runtime::CaptureMode::kThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return runtime::CaptureMode::kRelaxed;
    case at::GraphCaptureMode::Default:
    case at::GraphCaptureMode::Global:
      break;
  }
  return runtime::CaptureMode::kGlobal;
}

// CUDA keeps seed and offset of a generator in a block of device memory each, while a graph draws from it. We
// need none, but what a program measures is the same.
struct GraphMemory {
  struct Free {
    void operator()(void* block) const { free_device_memory(block); }
  };
  explicit GraphMemory(int device) {
    for (auto& block : blocks) block.reset(take_device_memory(devices().device(device), sizeof(int64_t)));
  }

  std::array<std::unique_ptr<void, Free>, 2> blocks;
};

std::shared_ptr<void> graph_memory_of(RandomState& state, int device) {
  if (device_type() != c10::DeviceType::CUDA) return nullptr;
  const auto known = [&] {
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.graph_memory.lock();
  };
  if (auto memory = known()) return memory;
  // Not under the lock: an allocation may need Python's. The loser of a race frees its own.
  std::shared_ptr<void> made = std::make_shared<GraphMemory>(device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (auto memory = state.graph_memory.lock()) return memory;
  state.graph_memory = made;
  return made;
}

// Whole or not at all: to a temporary name in the same folder, then renamed.
void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  const bool written = !file.fail() && std::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written) std::remove(temporary.c_str());
  TORCH_CHECK(written, "debug_dump: could not write ", path);
}

}  // namespace

LoomGraph::~LoomGraph() {
  if (!runtime::in_bad_fork()) reset();
}

void LoomGraph::capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(recording_ == nullptr,
              "This graph instance already owns a captured graph. To capture a new graph, create a new "
              "instance or call reset() first.");
  TORCH_CHECK(capture_ == nullptr, "This graph instance is capturing already.");
  devices();
  device_ = resolve_device(std::nullopt).index();
  own_ = &devices().device(device_);
  pin_ = runtime::worlds::Pin(own_->runtime());
  if (runtime::current_stream_of(device_).id == 0) {
    constexpr int32_t kStreamCaptureUnsupported = 900;  // CUDA's number
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kStreamCaptureUnsupported,
        device_name_upper() +
            " graphs must be captured on a non-default stream. (However, after capture, it's ok to replay "
            "them on the default stream.)");
  }
  register_generator(default_generator(device_));
  // Replays of an earlier capture that are still under way have theirs.
  for (Source& source : sources_) {
    source = {source.state, std::make_shared<CapturedRandom>(), source.memory};
  }
  runtime::PoolId wanted = pool;
  if (wanted == runtime::PoolId{0, 0}) wanted = runtime::new_pool_id(/*user_created=*/false);
  capture_ = translated([&] {
    return runtime::capture::begin(runtime::current_stream_of(device_), mode_of(mode), wanted,
                                   static_cast<GraphRandom*>(this));
  });
  pool_ = wanted;
  stream_ = runtime::current_stream_of(device_).id;
}

void LoomGraph::capture_end() {
  TORCH_CHECK(capture_ != nullptr, "capture_end() was called before capture_begin()");
  const runtime::CaptureRef ended = std::exchange(capture_, nullptr);
  try {
    recording_ =
        translated([&] { return runtime::capture::end(ended, runtime::current_stream_of(device_)); });
  } catch (...) {
    pool_ = {0, 0};
    throw;
  }
  if (recording_->nodes().empty()) {
    TORCH_WARN(
        "The ", device_name_upper(),
        " Graph is empty. This usually means that the graph was attempted to be captured on wrong device "
        "or stream.");
  }
  if (!keeps_graph_) instantiate();
}

void LoomGraph::instantiate() {
  TORCH_CHECK(recording_ != nullptr, "instantiate() needs a captured graph: call capture_end() first");
  if (queue_ == nullptr) queue_ = translated([&] { return std::make_unique<runtime::ReplayQueue>(device_); });
}

bool LoomGraph::is_seen() const { return own_ != nullptr && &own_->runtime() == &devices(); }

bool LoomGraph::writes_to(const void* begin, size_t bytes) const {
  const auto is_within = [&](const void* address) {
    return address >= begin && address < static_cast<const char*>(begin) + bytes;
  };
  const auto is_hit = [&](const runtime::Operand& each) {
    return each.is_written && is_within(each.address);
  };
  return recording_ != nullptr && std::ranges::any_of(recording_->nodes(), [&](const runtime::Node& node) {
           if (node.kind != runtime::CommandKind::kKernel) return is_within(node.destination);
           return std::ranges::any_of(node.record.record().inputs, is_hit) ||
                  std::ranges::any_of(node.record.outputs(),
                                      [&](const runtime::Operand& item) { return is_within(item.address); });
         });
}

void LoomGraph::replay() {
  TORCH_CHECK(recording_ != nullptr, "Called ", device_name_upper(),
              "Graph::replay without a preceding successful capture.");
  TORCH_CHECK(is_seen(),
              "replay(): the graph was captured on devices that the program does not "
              "see now: a dry run has begun or ended since; capture it anew");
  if (queue_ == nullptr) instantiate();
  translated([&] {
    queue_->submit(runtime::current_stream_of(device_), *recording_,
                   [this] { return std::make_unique<EngineReplay>(*this); });
  });
}

void LoomGraph::forget_recording() noexcept {
  // Replays under way hold the recording, and the pool's memory is given back only when its streams are idle.
  queue_.reset();
  recording_.reset();
  if (pool_ != runtime::PoolId{0, 0}) {
    // What was taken in the capture lies in the pool, and would keep its memory.
    workspaces::clear(*own_, stream_);
    own_->allocator->release_pool(pool_);
  }
  pool_ = {0, 0};
}

void LoomGraph::reset() {
  if (capture_ != nullptr) {
    runtime::capture::abort(std::exchange(capture_, nullptr));
    pool_ = {0, 0};
  }
  forget_recording();
}

at::MempoolId_t LoomGraph::pool() const {
  TORCH_CHECK(pool_ != runtime::PoolId(0, 0), "Called ", device_name_upper(),
              "Graph::pool() without a preceding successful capture.");
  return pool_;
}

void LoomGraph::debug_dump(const std::string& path) {
  if (!is_debugged_) {
    TORCH_WARN("Graph debugging is not enabled; call enable_debug_mode() first. Nothing was written.");
    return;
  }
  TORCH_CHECK(recording_ != nullptr, "debug_dump() needs a captured graph: call capture_end() first");
  write_file(path, recording_->to_dot());
}

LoomGraph::Source* LoomGraph::find(const RandomState& state) {
  for (Source& source : sources_) {
    if (source.state.get() == &state) return &source;
  }
  return nullptr;
}

void LoomGraph::register_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.defined(), "expected a generator of a ", device_name(), " device, got none");
  TORCH_CHECK(generator.device().type() == device_type(), "expected a generator of a ", device_name(),
              " device, got one of ", generator.device());
  const auto& state = static_cast<const LoomGenerator*>(generator.unsafeGetGeneratorImpl())->state();
  if (find(*state) != nullptr) return;
  sources_.push_back(
      {state, std::make_shared<CapturedRandom>(), graph_memory_of(*state, generator.device().index())});
}

uint64_t* LoomGraph::offset_of(const RandomState& state) {
  Source* const source = find(state);
  return source == nullptr ? nullptr : &source->offset;
}

CapturedDraw LoomGraph::draw_from(const at::Generator& generator, const char* op_name, uint64_t step) {
  const RandomState& state = *static_cast<const LoomGenerator*>(generator.unsafeGetGeneratorImpl())->state();
  Source* source = find(state);
  if (source == nullptr && generator == default_generator(generator.device().index())) {
    register_generator(generator);
    source = find(state);
  }
  if (source == nullptr) {
    TORCH_CHECK(false, "Attempt to increase offset for a ", device_name_upper(),
                " generator not in capture mode. (", op_name,
                " draws from a generator that is not registered with the graph that is being captured: call "
                "register_generator_state(generator) before the capture)");
  }
  const uint64_t offset = std::exchange(source->offset, source->offset + step);
  source->is_drawn = true;
  return {new_engine_generator(), source->random, offset, nullptr};
}

CapturedDraw captured_draw(const at::Generator& generator, int device, const char* op_name, uint64_t step) {
  auto* graph = static_cast<GraphRandom*>(runtime::capture::owner_of(runtime::current_stream_of(device)));
  TORCH_INTERNAL_ASSERT(graph != nullptr);
  return static_cast<LoomGraph*>(graph)->draw_from(generator, op_name, step);
}

void register_graph_impl() {
  // Before what a build for CUDA has for that type. No other name can be taken: it is the device type's.
  at::GraphImplRegistry()->Register(
      device_name_upper(),
      [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<LoomGraph>(args);
      },
      c10::REGISTRY_PREFERRED);
}

}  // namespace loom::glue
