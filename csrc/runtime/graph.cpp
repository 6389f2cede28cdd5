#include "runtime/graph.h"

#include <sstream>
#include <utility>

#include "runtime/capture.h"
#include "runtime/simulated_clock.h"
#include "runtime/worlds.h"

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

void Recording::run(driver::Driver& driver, driver::Stream stream,
                    const std::vector<timing::Shared>& times) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const timing::Running running(times.empty() ? nullptr : times[i].get());
    switch (node.kind) {
      case CommandKind::kKernel:
        node.kernel.run(node.kernel.context, stream);
        break;
      case CommandKind::kCopy:
        untold::copy(driver, stream, node.destination, node.source, node.bytes);
        break;
      default:
        untold::fill(driver, stream, node.destination, node.value, node.bytes);
        break;
    }
  }
}

std::vector<timing::Shared> Recording::notify(StreamRef stream) const {
  std::vector<timing::Shared> all_times;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!tape::is_told(node.kind)) continue;
    const KernelRecord record = node.record.record();
    timing::Shared times;
    {
      const simulated::Said said(node.said_ns);
      Issue issue;
      Command& command = issue.describe(node.kind, stream);
      command.name = node.name.c_str();
      command.address = node.destination;
      command.source = node.source;
      command.bytes = node.bytes;
      command.op = record.op;
      command.inputs = record.inputs;
      command.attributes = record.attributes;
      issue.begin();
      issue.set_outputs(node.record.outputs());
      // Its time of return stays open: the call that issues it is that of the replay.
      times = issue.take_times();
      issue.end();
    }
    if (times == nullptr) continue;
    if (simulated::is_on()) {
      simulated::note(*times);
      continue;
    }
    if (!get().device(stream.device).runs_kernels()) timing::note_not_run(*times);
    all_times.resize(nodes_.size());
    all_times[i] = std::move(times);
  }
  return all_times;
}

namespace {

void print(std::ostream& out, const Operand& operand, bool is_written) {
  out << "\\n" << (is_written ? "writes " : "reads ") << operand.address << " [";
  for (int32_t d = 0; d < operand.num_dims; ++d) out << (d == 0 ? "" : ", ") << operand.sizes[d];
  out << "] of " << operand.item_bytes << " bytes";
}

}  // namespace

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
    for (const Operand& operand : node.record.record().inputs) print(out, operand, operand.is_written);
    for (const Operand& operand : node.record.outputs()) print(out, operand, /*is_written=*/true);
    out << "\"];\n";
    for (const uint32_t before : node.after) out << "  n" << before << " -> n" << i << ";\n";
  }
  out << "}\n";
  return out.str();
}

ReplayQueue::ReplayQueue(int device) : finished_(make_event(get().device(device), {/*timing=*/false})) {}

ReplayQueue::~ReplayQueue() {
  if (!in_bad_fork()) destroy_event(finished_);
}

void ReplayQueue::submit(StreamRef stream, const Recording& recording,
                         const std::function<std::unique_ptr<Replay>()>& make) {
  if (is_captured(stream)) capture::forbid_on(stream, "the replay of a graph");
  const Device& device = get().device(stream.device);
  driver::Driver& driver = device.driver();
  const driver::Stream handle = device.stream(stream.id);
  const auto must_follow = [&] { return has_replayed_ && !(last_stream_ == stream); };
  Issue issue;
  std::vector<timing::Shared> times;
  const bool is_told = tape::is_told(CommandKind::kReplay);
  if (is_told) [[unlikely]] {
    {
      // Report the wait first; report commands unlocked, since readers may need Python's lock.
      const std::lock_guard<std::mutex> lock(mutex_);
      if (must_follow()) wait_event(stream, finished_);
    }
    issue.describe(CommandKind::kReplay, stream);
    issue.begin();
  }
  if (tape::is_read()) [[unlikely]]
    times = recording.notify(stream);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Wait again if the wait was reported above: another replay may have come between.
    if (must_follow() && is_told) untold::wait_event(driver, handle, finished_);
    if (must_follow() && !is_told) wait_event(stream, finished_);
    std::unique_ptr<Replay> replay = make();
    replay->driver_ = &driver;
    replay->stream_ = handle;
    replay->times_ = std::move(times);
    const driver::Kernel kernel{
        "graph replay", [](void* context, driver::Stream) { static_cast<Replay*>(context)->run(); },
        [](void* context) { delete static_cast<Replay*>(context); }, replay.release()};
    untold::submit(driver, handle, kernel);
    record_event(finished_, stream);
    has_replayed_ = true;
    last_stream_ = stream;
  }
  issue.end();
}

}  // namespace loom::runtime
