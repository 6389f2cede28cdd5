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

PlanRecorder::PlanRecorder(std::function<void(int)> at_peak, std::vector<ReductionUnits> units)
    : TapeReader(kMemory | kinds_of({CommandKind::kKernel}), kWork),
      at_peak_(std::move(at_peak)),
      units_(std::move(units)),
      used_(units_.size()),
      peak_(units_.size()) {}

void PlanRecorder::begin(const Command& command) {
  const auto device = static_cast<size_t>(command.device);
  if (command.device < 0 || device >= used_.size()) return;
  if (command.kind == CommandKind::kKernel) {
    take_partial_sums(command);
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

void PlanRecorder::take_partial_sums(const Command& command) {
  if (command.op == nullptr || command.op->shape_class != ShapeClass::kReduction) return;
  const size_t bytes = reduction_bytes(command, units_[static_cast<size_t>(command.device)]);
  if (bytes == 0) return;
  const TakingWorkspace taking;
  CachingAllocator& allocator = *get().device(command.device).allocator;
  allocator.deallocate(allocator.allocate(bytes, command.stream));
}

}  // namespace loom::runtime
