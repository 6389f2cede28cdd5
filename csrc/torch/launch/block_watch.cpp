#include "torch/launch/block_watch.h"

#include <algorithm>
#include <cstring>

#include "torch/core/device.h"
#include "torch/launch/grid_watch.h"
#include "torch/launch/launch.h"

namespace loom::glue {

namespace {

using kernel_checks::AccessKind;

std::string triple(const std::array<uint64_t, 3>& xyz) {
  return "(" + std::to_string(xyz[0]) + ", " + std::to_string(xyz[1]) + ", " + std::to_string(xyz[2]) + ")";
}

std::string block_text(const loom_cuda_kernel& kernel, int64_t number) {
  const auto block = static_cast<uint64_t>(number);
  return "block " + triple({block % kernel.grid[0], block / kernel.grid[0] % kernel.grid[1],
                            block / kernel.grid[0] / kernel.grid[1]});
}

std::string line_text(const void* from) {
  const std::string line = line_of(from);
  return line.empty() ? line : " at " + line;
}

const char* verb_of_access(AccessKind kind) {
  return kind == AccessKind::kRead ? " reads " : kind == AccessKind::kWrite ? " writes " : " changes ";
}
const char* past_of_access(AccessKind kind) {
  return kind == AccessKind::kRead    ? " has read"
         : kind == AccessKind::kWrite ? " has written"
                                      : " has changed by an atomic";
}

}  // namespace

std::string BlockWatch::look(const cuda_cpp::Runner& runner, const KernelRange& memory, uintptr_t address,
                             size_t bytes, BlockAccess how, const void* from) {
  if (has_given_up_) return {};
  if (std::string wrong = settle(); !wrong.empty()) return wrong;
  grid_ = &runner.grid_run();
  const loom_cuda_kernel& kernel = grid_->kernel;
  const bool is_read = how == BlockAccess::kRead || how == BlockAccess::kVolatileRead;
  touched_[memory.begin].add(from, address, address + bytes, !is_read);
  Write write;
  write.access.program = static_cast<int64_t>(
      runner.at[0] + uint64_t{kernel.grid[0]} * (runner.at[1] + uint64_t{kernel.grid[1]} * runner.at[2]));
  write.access.site = from;
  write.access.kind = is_read                      ? AccessKind::kRead
                      : how == BlockAccess::kWrite ? AccessKind::kWrite
                                                   : AccessKind::kAtomic;
  kernel.thread_index(write.thread.data());
  write.memory = memory.name;
  if (how == BlockAccess::kWrite) {
    unwritten_memory().remove(address, address + bytes);
  } else if (unwritten_memory().holds(address, address + bytes)) {
    return block_text(kernel, write.access.program) + ", thread " +
           triple({write.thread[0], write.thread[1], write.thread[2]}) + verb_of_access(write.access.kind) +
           std::to_string(bytes) + " bytes" + line_text(from) + " at byte " +
           std::to_string(address - memory.begin) + " of " + memory.name + ", which nothing has written";
  }
  // Which order a program means by an atomic is not known: each gives one.
  if (how == BlockAccess::kAtomic || how == BlockAccess::kVolatileRead)
    races_.synchronize(write.access.program, address);
  if (how == BlockAccess::kVolatileRead) return {};
  while (bytes != 0) {
    write.address = address;
    write.bytes = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
    if (how == BlockAccess::kWrite) {
      std::memcpy(write.before.data(), reinterpret_cast<const void*>(address), write.bytes);
      writes_.push_back(write);
    } else if (std::string wrong = find_race(*grid_, write, nullptr); !wrong.empty()) {
      return wrong;
    }
    address += write.bytes;
    bytes -= write.bytes;
  }
  return {};
}

std::string BlockWatch::settle() {
  std::string wrong;
  for (const Write& each : writes_) {
    // Other blocks may have changed the memory since, once they run at the same time.
    if (wrong.empty() && !has_given_up_) wrong = find_race(*grid_, each, each.before.data());
  }
  writes_.clear();
  return wrong;
}

std::string BlockWatch::find_race(const cuda_cpp::GridRun& grid, const Write& item, const void* value) {
  kernel_checks::Access other;
  if (!races_.find_race(item.access, item.address, item.bytes, value, &other)) return {};
  return "a race between blocks: " + block_text(grid.kernel, item.access.program) + ", thread " +
         triple({item.thread[0], item.thread[1], item.thread[2]}) + verb_of_access(item.access.kind) +
         std::to_string(item.bytes) + " bytes" + line_text(item.access.site) + " of " + item.memory +
         ", which " + block_text(grid.kernel, other.program) + past_of_access(other.kind) +
         line_text(other.site) + ": blocks of a launch run in any order";
}

std::vector<kernel_checks::Piece> BlockWatch::pieces(const std::vector<KernelRange>& given) {
  // A launch that jumps about in a tensor, as one that scatters, may use all that lies between.
  constexpr size_t kMostPieces = 16;
  std::vector<kernel_checks::Piece> found;
  if (has_given_up_) {
    for (const KernelRange& range : given) {
      unwritten_memory().remove(range.begin, range.end);
      for (const bool is_written : {false, true}) {
        kernel_checks::Piece piece;
        piece.begin = range.begin;
        piece.bytes = static_cast<int64_t>(range.end - range.begin);
        piece.is_written = is_written;
        found.push_back(piece);
      }
    }
    return found;
  }
  for (auto& [begin, touched] : touched_) {
    for (const kernel_checks::Piece& piece : touched.pieces(kMostPieces)) found.push_back(piece);
  }
  return found;
}

}  // namespace loom::glue
