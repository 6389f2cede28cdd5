#include "runtime/graph.h"

#include <sstream>
#include <utility>

#include "runtime/capture.h"
#include "runtime/runtime.h"

namespace loom::runtime {

Recording::~Recording() {
  for (const Node& node : nodes_) {
    if (node.kernel.release != nullptr) node.kernel.release(node.kernel.context);
  }
}

uint32_t Recording::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void Recording::run(driver::Stream stream, const std::vector<timing::Shared>& times) const {
  driver::Driver& driver = get().driver();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const timing::Running running(times.empty() ? nullptr : times[i].get());
    switch (node.kind) {
      case CommandKind::kKernel:
        node.kernel.run(node.kernel.context);
        break;
      case CommandKind::kCopy:
        driver.copy(stream, node.destination, node.source, node.bytes);
        break;
      default:
        driver.fill(stream, node.destination, node.value, node.bytes);
        break;
    }
  }
}

std::vector<timing::Shared> Recording::notify(StreamRef stream) const {
  std::vector<timing::Shared> all_times;
  std::vector<Operand> operands;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    operands.clear();
    for (const Node::KeptOperand& kept : node.operands) {
      operands.push_back({kept.address, kept.sizes.data(), kept.strides.data(),
                          static_cast<int32_t>(kept.sizes.size()), kept.item_bytes, kept.is_written});
    }
    timing::Shared times;
    Command command{};
    command.kind = node.kind;
    command.device = stream.device;
    command.stream = stream.id;
    command.name = node.name.c_str();
    command.address = node.destination;
    command.source = node.source;
    command.bytes = node.bytes;
    command.operands = operands.data();
    command.num_operands = operands.size();
    command.times = &times;
    tape::write(command);
    if (times == nullptr) continue;
    if (!get().driver().info().executes_kernels) timing::note_not_run(*times);
    all_times.resize(nodes_.size());
    all_times[i] = std::move(times);
  }
  return all_times;
}

std::string Recording::to_dot() const {
  std::ostringstream out;
  out << "digraph loom_graph {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    // Quotes and backslashes end no label: names of ops have neither.
    out << "  n" << i << " [label=\"" << i << ": " << node.name << "\\nstream " << node.stream.id
        << " of device " << node.stream.device;
    if (node.kind != CommandKind::kKernel) {
      out << "\\nto " << node.destination;
      if (node.source != nullptr) out << "\\nfrom " << node.source;
      out << "\\n" << node.bytes << " bytes";
    }
    for (const Node::KeptOperand& operand : node.operands) {
      out << "\\n" << (operand.is_written ? "writes " : "reads ") << operand.address << " [";
      for (size_t d = 0; d < operand.sizes.size(); ++d) out << (d == 0 ? "" : ", ") << operand.sizes[d];
      out << "] of " << operand.item_bytes << " bytes";
    }
    out << "\"];\n";
    for (const uint32_t before : node.after) out << "  n" << before << " -> n" << i << ";\n";
  }
  out << "}\n";
  return out.str();
}

ReplayQueue::ReplayQueue() : finished_(get().driver().create_event({/*timing=*/false})) {}

ReplayQueue::~ReplayQueue() {
  if (!in_bad_fork()) destroy_event(finished_);
}

void ReplayQueue::submit(StreamRef stream, const Recording& recording,
                         const std::function<std::unique_ptr<Replay>()>& make) {
  if (is_captured(stream)) capture::forbid_on(stream, "the replay of a graph");
  driver::Driver& driver = get().driver();
  const driver::Stream handle = get().stream(stream.device, stream.id);
  const auto must_follow = [&] { return has_replayed_ && !(last_stream_ == stream); };
  const bool is_notified = tape::is_read();
  timing::Shared launch_times;
  std::vector<timing::Shared> times;
  if (is_notified) [[unlikely]] {
    {
      // The tape hears of the order before it hears of the commands; and of those without the lock, since its
      // readers may wait for Python's.
      const std::lock_guard<std::mutex> lock(mutex_);
      if (must_follow()) wait_event(stream, finished_);
    }
    Command command{};
    command.kind = CommandKind::kReplay;
    command.name = "graph replay";
    command.device = stream.device;
    command.stream = stream.id;
    command.times = &launch_times;
    tape::write(command);
    times = recording.notify(stream);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  // Again where it was told above: another replay may have come between.
  if (must_follow() && is_notified) driver.wait_event(handle, finished_);
  if (must_follow() && !is_notified) wait_event(stream, finished_);
  std::unique_ptr<Replay> replay = make();
  replay->stream_ = handle;
  replay->times_ = std::move(times);
  const driver::Kernel kernel{"graph replay", [](void* context) { static_cast<Replay*>(context)->run(); },
                              [](void* context) { delete static_cast<Replay*>(context); }, replay.release()};
  driver.submit(handle, kernel);
  if (launch_times != nullptr) [[unlikely]]
    launch_times->returned_ns = timing::now_ns();
  record_event(finished_, stream);
  has_replayed_ = true;
  last_stream_ = stream;
}

}  // namespace loom::runtime
