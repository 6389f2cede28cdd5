#include "torch/launch/grid_watch.h"

#include <memory>
#include <utility>

#include "runtime/tape.h"
#include "runtime/worlds.h"
#include "torch/core/device.h"

namespace loom::glue {

std::atomic<bool> are_grids_watched{false};

// Leaked: kernels may run until the process ends.
kernel_checks::UnwrittenMemory& unwritten_memory() {
  static auto* instance = new kernel_checks::UnwrittenMemory;
  return *instance;
}

namespace {

using kernel_checks::Access;
using kernel_checks::AccessKind;
using runtime::Command;
using runtime::CommandKind;
using runtime::kinds_of;

// One pointer: thread-locals are scarce (util/thread_local.h).
thread_local const WatchedLaunches* of_thread = nullptr;

// Follows allocations and all commands that write, in the order in which they are issued.
class WriteReader final : public runtime::TapeReader {
 public:
  WriteReader()
      : TapeReader(kinds_of({CommandKind::kAllocate, CommandKind::kFree, CommandKind::kFill,
                             CommandKind::kCopy, CommandKind::kStoreResult}),
                   kinds_of({CommandKind::kKernel})) {}

  void begin(const Command& command) override {
    if (command.device < 0 || command.bytes == 0) return;
    const uintptr_t first = address_of(command.address);
    if (command.kind == CommandKind::kAllocate) {
      unwritten_memory().add(first, first + command.bytes);
    } else {
      unwritten_memory().remove(first, first + command.bytes);
    }
  }

  void end(const Command& command) override {
    if (command.is_captured || WatchedIssue::of_this_thread() != nullptr) return;
    for (const runtime::Operand& operand : command.inputs) {
      if (operand.is_written) remove(operand);
    }
    for (const runtime::Operand& operand : command.outputs) remove(operand);
  }

 private:
  static uintptr_t address_of(const void* address) {
    return reinterpret_cast<uintptr_t>(runtime::engine_address(const_cast<void*>(address)));
  }
  static void remove(const runtime::Operand& operand) {
    if (operand.address == nullptr) return;
    unwritten_memory().remove(address_of(operand.address), operand.sizes, operand.strides, operand.num_dims,
                              operand.item_bytes);
  }
};

const char* verb_of(GridAccess kind) {
  switch (kind) {
    case GridAccess::kRead:
    case GridAccess::kVolatileRead:
      return "reads";
    case GridAccess::kWrite:
      return "writes";
    default:
      return "changes";
  }
}
const char* past_of(AccessKind kind) {
  return kind == AccessKind::kRead ? "read" : kind == AccessKind::kWrite ? "written" : "changed by an atomic";
}

}  // namespace

LaunchWatcher::LaunchWatcher(const std::array<int64_t, 3>& grid, std::vector<int64_t> begins,
                             const std::vector<std::string>& shapes)
    : GridWatcher{[](GridWatcher* self, int64_t program, const GridSite* site, int64_t address, int64_t bytes,
                     int32_t kind, const void* value) {
        const auto how = static_cast<GridAccess>(kind);
        const auto known = how == GridAccess::kWrite ? AccessKind::kWrite
                           : how == GridAccess::kRead || how == GridAccess::kVolatileRead
                               ? AccessKind::kRead
                               : AccessKind::kAtomic;
        return static_cast<LaunchWatcher*>(self)->look({program, site, known}, *site,
                                                       static_cast<uintptr_t>(address),
                                                       static_cast<uint32_t>(bytes), how, value);
      }},
      grid_(grid),
      begins_(std::move(begins)),
      shapes_(shapes),
      touched_(begins_.size() + 1) {}

std::vector<std::vector<kernel_checks::Piece>> LaunchWatcher::touched() {
  // A launch that jumps about in a tensor, as one that scatters, may use all that lies between.
  constexpr size_t kMostPieces = 16;
  std::vector<std::vector<kernel_checks::Piece>> found;
  for (kernel_checks::TouchedMemory& each : touched_) found.push_back(each.pieces(kMostPieces));
  return found;
}

std::string LaunchWatcher::program_text(int64_t program) const {
  return "program (" + std::to_string(program % grid_[0]) + ", " +
         std::to_string(program / grid_[0] % grid_[1]) + ", " +
         std::to_string(program / grid_[0] / grid_[1]) + ")";
}

std::string LaunchWatcher::begin_of(const Access& access, const GridSite& site, const char* does,
                                    uintptr_t address, uint32_t bytes) const {
  std::string text = std::string(site.place) + ": " + program_text(access.program) + " of (" +
                     std::to_string(grid_[0]) + ", " + std::to_string(grid_[1]) + ", " +
                     std::to_string(grid_[2]) + ") " + does + " " + std::to_string(bytes) + " bytes";
  if (site.number >= 0) {
    const auto number = static_cast<size_t>(site.number);
    text += " at byte " + std::to_string(static_cast<int64_t>(address) - begins_[number]) + " of argument " +
            site.argument + ", " + shapes_[number];
  }
  return text;
}

const char* LaunchWatcher::look(const Access& access, const GridSite& site, uintptr_t address, uint32_t bytes,
                                GridAccess kind, const void* value) {
  const size_t number = site.number >= 0 ? static_cast<size_t>(site.number) : begins_.size();
  const bool is_read = kind == GridAccess::kRead || kind == GridAccess::kVolatileRead;
  touched_[number].add(&site, address, address + bytes, !is_read);
  if (kind == GridAccess::kWrite) {
    unwritten_memory().remove(address, address + bytes);
  } else if (unwritten_memory().holds(address, address + bytes)) {
    text_ = begin_of(access, site, verb_of(kind), address, bytes) + ", which nothing has written";
    return text_.c_str();
  }
  if (kind == GridAccess::kLock || kind == GridAccess::kVolatileRead)
    races_.synchronize(access.program, address);
  if (kind == GridAccess::kVolatileRead) return nullptr;
  Access other;
  if (!races_.find_race(access, address, bytes, value, &other)) return nullptr;
  text_ = begin_of(access, site, verb_of(kind), address, bytes) + ": a race with " +
          program_text(other.program) + ", by which it was " + past_of(other.kind) + " at " +
          static_cast<const GridSite*>(other.site)->place + "; programs of a launch run in any order";
  return text_.c_str();
}

void watch_grids() {
  static const auto* const reader = [] {
    auto* made = new std::shared_ptr<WriteReader>(std::make_shared<WriteReader>());
    runtime::tape::attach(*made);
    are_grids_watched.store(true);
    return made;
  }();
  (void)reader;
}

WatchedIssue::WatchedIssue() : before_(of_thread) {
  if (before_ != nullptr) own_ = *before_;
  own_.issued = this;
  of_thread = &own_;
}
WatchedIssue::~WatchedIssue() { of_thread = before_; }
const WatchedIssue::Accesses* WatchedIssue::of_this_thread() noexcept {
  return of_thread == nullptr || of_thread->issued == nullptr ? nullptr : of_thread->issued->accesses_.get();
}
WatchedIssue::Accesses* WatchedIssue::of_running_launch() noexcept {
  return of_thread == nullptr ? nullptr : of_thread->running;
}

WatchedRun::WatchedRun(WatchedIssue::Accesses* accesses) : before_(of_thread) {
  if (before_ != nullptr) own_ = *before_;
  own_.running = accesses;
  of_thread = &own_;
}
WatchedRun::~WatchedRun() { of_thread = before_; }

}  // namespace loom::glue
