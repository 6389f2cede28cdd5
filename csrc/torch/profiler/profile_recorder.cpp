#include "torch/profiler/profile_recorder.h"

#include <ThreadUtil.h>

#include <string_view>
#include <utility>

#include "runtime/worlds.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace {

using runtime::Command;
using runtime::CommandKind;

thread_local std::shared_ptr<const OpenRange> open_ranges;

// What profiles show: not memory, which the allocator reports to PyTorch's profiler, and not queries.
constexpr runtime::CommandKinds kShown = runtime::kinds_of(
    {CommandKind::kKernel, CommandKind::kCopy, CommandKind::kFill, CommandKind::kRecordEvent,
     CommandKind::kWaitEvent, CommandKind::kSynchronizeStream, CommandKind::kSynchronizeEvent,
     CommandKind::kSynchronizeDevice, CommandKind::kReplay});

// In the words that tools which read traces look for.
const char* direction_of(const Command& command) {
  using Kind = driver::AddressKind;
  const runtime::Place to = runtime::locate(command.address), from = runtime::locate(command.source);
  if (to.kind == Kind::kDevice && from.kind == Kind::kDevice) {
    return to.device == from.device ? "Memcpy DtoD (Device -> Device)" : "Memcpy PtoP (Device -> Device)";
  }
  if (to.kind == Kind::kDevice) {
    return from.kind == Kind::kPinnedHost ? "Memcpy HtoD (Pinned -> Device)"
                                          : "Memcpy HtoD (Pageable -> Device)";
  }
  if (from.kind == Kind::kDevice) {
    return to.kind == Kind::kPinnedHost ? "Memcpy DtoH (Device -> Pinned)"
                                        : "Memcpy DtoH (Device -> Pageable)";
  }
  return "Memcpy HtoH (Host -> Host)";
}

// How many bytes a kernel clears, in one piece, if it does nothing else: profiles show that as the fill that
// it is. Otherwise 0.
size_t cleared_bytes(const Command& command) {
  if (command.op == nullptr || command.inputs.size() != 1) return 0;
  if (std::string_view(command.op->name) != "aten::zero_") return 0;
  const runtime::Operand& operand = command.inputs.front();
  int64_t num_items = 1;
  for (int32_t dim = operand.num_dims - 1; dim >= 0; --dim) {
    if (operand.sizes[dim] != 1 && operand.strides[dim] != num_items) return 0;
    num_items *= operand.sizes[dim];
  }
  return static_cast<size_t>(num_items * operand.item_bytes);
}

}  // namespace

void push_range(const std::string& name) {
  open_ranges = std::make_shared<OpenRange>(OpenRange{0, name, std::move(open_ranges)});
}

void pop_range() {
  if (open_ranges == nullptr) return;
  std::shared_ptr<const OpenRange> outer = open_ranges->outer;
  open_ranges = std::move(outer);
}

// What a thread is in, of the profile `recorder`.
struct ProfileRecorder::Thread {
  uint64_t recorder = 0;
  std::vector<uint64_t> ops;
  std::shared_ptr<const OpenRange> scopes;
};

ProfileRecorder::ProfileRecorder()
    : TapeReader(kShown), id_([] {
        static std::atomic<uint64_t> last{0};
        return ++last;
      }()) {}

ProfileRecorder::Thread& ProfileRecorder::here() {
  static thread_local Thread thread;
  if (thread.recorder != id_) {
    thread = {};
    thread.recorder = id_;
  }
  return thread;
}

namespace {

// A size of three numbers that a kernel of the program's own is launched with; empty where it has none.
std::string triple_of(const Command& command, const char* name) {
  for (const runtime::Attribute& attribute : command.attributes) {
    if (attribute.kind != runtime::Attribute::Kind::kIntegers || attribute.count != 3) continue;
    if (std::string_view(attribute.name) != name) continue;
    std::string text = "[";
    for (uint32_t i = 0; i < 3; ++i) text += (i == 0 ? "" : ", ") + std::to_string(attribute.integers[i]);
    return text + "]";
  }
  return {};
}

}  // namespace

void ProfileRecorder::begin(const Command& command) {
  if (command.times == nullptr) return;
  if (!is_open_.load(std::memory_order_relaxed)) return;
  Thread& thread = here();
  if (*command.times == nullptr) *command.times = std::make_shared<runtime::CommandTimes>();
  Record record{};
  const size_t cleared = cleared_bytes(command);
  record.kind = cleared != 0 ? CommandKind::kFill : command.kind;
  record.device = command.device;
  record.stream = command.stream;
  // Ops by their names without the overload, as PyTorch's profiler has them.
  record.name = command.op == nullptr ? command.name : command.op->name;
  record.shape_class = command.op == nullptr ? runtime::ShapeClass::kBytesMoved : command.op->shape_class;
  if (command.kind == CommandKind::kKernel) {
    record.grid = triple_of(command, "grid");
    record.block = triple_of(command, "block");
  }
  record.event = command.event;
  record.bytes = cleared != 0 ? cleared : command.bytes;
  record.direction = command.kind == CommandKind::kCopy ? direction_of(command) : "";
  record.thread = libkineto::systemThreadId();
  record.op = thread.ops.empty() ? 0 : thread.ops.back();
  record.scopes = thread.scopes;
  record.ranges = open_ranges;
  record.times = *command.times;
  const std::lock_guard<std::mutex> lock(mutex_);
  records_.push_back(std::move(record));
}

void ProfileRecorder::push_op(uint64_t correlation) { here().ops.push_back(correlation); }

void ProfileRecorder::pop_op() {
  // A pop without its push: the op began before the profile did.
  if (Thread& thread = here(); !thread.ops.empty()) thread.ops.pop_back();
}

void ProfileRecorder::push_scope(uint64_t correlation) {
  Thread& thread = here();
  thread.scopes = std::make_shared<OpenRange>(OpenRange{correlation, "", std::move(thread.scopes)});
}

void ProfileRecorder::pop_scope() {
  Thread& thread = here();
  if (thread.scopes == nullptr) return;
  std::shared_ptr<const OpenRange> outer = thread.scopes->outer;
  thread.scopes = std::move(outer);
}

std::deque<ProfileRecorder::Record> ProfileRecorder::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(records_, {});
}

}  // namespace loom::glue
