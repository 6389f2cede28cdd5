#include "runtime/plan_recorder.h"

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

PlanRecorder::PlanRecorder(std::function<void(int)> at_peak, std::vector<size_t> workspace_bytes)
    : TapeReader(kMemory | kinds_of({CommandKind::kKernel}), kWork),
      at_peak_(std::move(at_peak)),
      workspace_bytes_(std::move(workspace_bytes)),
      used_(workspace_bytes_.size()),
      peak_(workspace_bytes_.size()),
      workspaces_(workspace_bytes_.size()) {}

void PlanRecorder::begin(const Command& command) {
  const auto device = static_cast<size_t>(command.device);
  if (command.device < 0 || device >= used_.size()) return;
  if (command.kind == CommandKind::kKernel) {
    const bool is_product = command.op != nullptr && command.op->shape_class == ShapeClass::kMatmul;
    if (is_product && workspace_bytes_[device] != 0 && workspaces_[device].empty()) {
      take_workspace(command.device);
    }
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

void PlanRecorder::take_workspace(int device) {
  const auto place = static_cast<size_t>(device);
  // Whole pages of the large pool, and a small rest: two libraries' workspaces.
  constexpr size_t kWhole = size_t{2} << 20;
  const size_t rest = workspace_bytes_[place] % kWhole;
  takes_workspace = true;
  try {
    for (const size_t bytes : {workspace_bytes_[place] - rest, rest}) {
      if (bytes != 0) workspaces_[place].push_back(get().device(device).allocator->allocate(bytes, 0));
    }
  } catch (...) {
    takes_workspace = false;
    throw;
  }
  takes_workspace = false;
}

void PlanRecorder::release_workspaces() noexcept {
  for (size_t device = 0; device < workspaces_.size(); ++device) {
    for (void* const memory : std::exchange(workspaces_[device], {})) {
      get().device(static_cast<int>(device)).allocator->deallocate(memory);
    }
  }
}

}  // namespace loom::runtime
