#include "runtime/plan_recorder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/runtime.h"
#include "runtime/simulated_clock.h"

namespace loom::runtime {

namespace {

constexpr CommandKinds kMemory = kinds_of({CommandKind::kAllocate, CommandKind::kFree});
constexpr CommandKinds kWork = kinds_of({CommandKind::kKernel, CommandKind::kCopy, CommandKind::kFill});
// What the allocator rounds sizes to.
constexpr int64_t kRoundingBytes = 512;

}  // namespace

PlanRecorder::PlanRecorder(std::function<void(int)> at_peak, std::function<bool()> is_backward,
                           std::vector<Workspace> workspaces)
    : TapeReader(kMemory | kinds_of({CommandKind::kKernel}), kWork),
      at_peak_(std::move(at_peak)),
      is_backward_(std::move(is_backward)),
      workspaces_(std::move(workspaces)),
      used_(workspaces_.size()),
      peak_(workspaces_.size()),
      taken_(workspaces_.size()) {}

void PlanRecorder::begin(const Command& command) {
  const auto device = static_cast<size_t>(command.device);
  if (command.device < 0 || device >= used_.size()) return;
  if (command.kind == CommandKind::kKernel) {
    take_library_memory(command);
    return;
  }
  const auto address = reinterpret_cast<uint64_t>(command.address);
  bool is_peak = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t bytes = 0;
    if (command.kind == CommandKind::kAllocate) {
      bytes = (static_cast<int64_t>(command.bytes) + kRoundingBytes - 1) / kRoundingBytes * kRoundingBytes;
      bytes_[address] = bytes;
    } else if (const auto found = bytes_.find(address); found != bytes_.end()) {
      bytes = -found->second;
      bytes_.erase(found);
    } else {
      return;
    }
    used_[device] += bytes;
    is_peak = used_[device] > peak_[device];
    if (is_peak) peak_[device] = used_[device];
    kept_.memory.push_back({simulated::host_ns(), address, bytes, command.device, takes_workspace ? 1 : 0});
  }
  if (is_peak && at_peak_) at_peak_(command.device);
}

void PlanRecorder::end(const Command& command) {
  const simulated::Span span = simulated::last_span();
  if (command.has_failed || command.is_captured || span.began_ns < 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  int32_t place = -1;
  if (const auto found = places_.find(command.op); command.op != nullptr && found != places_.end()) {
    place = found->second;
  } else {
    const std::string name = command.op == nullptr ? command.name : command.op->name;
    const auto [known, is_new] = places_by_name_.try_emplace(name, static_cast<int32_t>(kept_.totals.size()));
    place = known->second;
    if (is_new) {
      const char* const family = command.op != nullptr                  ? name_of(command.op->shape_class)
                                 : name.starts_with("c10d::")           ? "collective"
                                 : command.kind == CommandKind::kKernel ? "other"
                                                                        : "copy";
      kept_.totals.push_back({name, family});
    }
    if (command.op != nullptr) places_[command.op] = place;
  }
  Total& total = kept_.totals[static_cast<size_t>(place)];
  ++total.calls;
  total.nanoseconds += span.ended_ns - span.began_ns;
  if (kept_.spans.size() < kMaxSpans) {
    const auto stream = static_cast<int16_t>(command.stream & ((int64_t{1} << kStreamIdBits) - 1));
    kept_.spans.push_back(
        {span.began_ns, span.ended_ns, place, static_cast<int16_t>(command.device), stream});
  }
}

PlanRecorder::Kept PlanRecorder::kept() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kept_;
}

void PlanRecorder::take_library_memory(const Command& command) {
  if (command.op == nullptr) return;
  const Workspace& workspace = workspaces_[static_cast<size_t>(command.device)];
  if (command.op->shape_class == ShapeClass::kReduction) {
    take_partial_sums(command, workspace);
  } else if (command.op->shape_class == ShapeClass::kMatmul) {
    take_workspaces(command, workspace);
  }
}

void PlanRecorder::take_partial_sums(const Command& command, const Workspace& workspace) {
  if (const size_t bytes = reduction_bytes(command, workspace.units); bytes != 0) {
    get().device(command.device).allocator->deallocate(take(command.device, command.stream, bytes));
  }
}

void PlanRecorder::take_workspaces(const Command& command, const Workspace& workspace) {
  const bool has_bias =
      command.inputs.size() == 3 && std::any_of(command.inputs.begin(), command.inputs.end(),
                                                [](const Operand& operand) { return operand.num_dims == 1; });
  bool is_new = false, is_first_linear = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Taken& taken = taken_[static_cast<size_t>(command.device)];
    is_new = taken.lanes.emplace(std::this_thread::get_id(), is_backward_(), command.stream).second;
    is_first_linear = has_bias && !std::exchange(taken.has_linear, taken.has_linear || has_bias);
  }
  if (is_new && workspace.bytes != 0) keep(command, workspace.bytes);
  if (is_first_linear && workspace.linear_bytes != 0) keep(command, workspace.linear_bytes);
}

void* PlanRecorder::take(int device, int64_t stream, size_t bytes) {
  takes_workspace = true;
  void* block = nullptr;
  try {
    block = get().device(device).allocator->allocate(bytes, stream);
  } catch (...) {
    takes_workspace = false;
    throw;
  }
  takes_workspace = false;
  return block;
}

void PlanRecorder::keep(const Command& command, size_t bytes) {
  void* const block = take(command.device, command.stream, bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  taken_[static_cast<size_t>(command.device)].blocks.push_back(block);
}

void PlanRecorder::release_workspaces() noexcept {
  for (size_t device = 0; device < taken_.size(); ++device) {
    for (void* const memory : std::exchange(taken_[device].blocks, {})) {
      get().device(static_cast<int>(device)).allocator->deallocate(memory);
    }
  }
}

}  // namespace loom::runtime
