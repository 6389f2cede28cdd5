// What a dry run keeps of the commands of its devices: memory that was taken and given back, and when each
// command runs by the simulated clock. A reader of the tape, attached after that clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/reduction_memory.h"
#include "runtime/tape.h"

namespace loom::runtime {

class PlanRecorder final : public TapeReader {
 public:
  struct MemoryEvent {
    int64_t time_ns;
    uint64_t address;
    int64_t bytes;  // below 0: given back
    int32_t device;
    int32_t is_workspace;  // of a library: no tensor's
  };
  struct Span {
    int64_t began_ns, ended_ns;
    int32_t name;  // a place among the names
    int16_t device, stream;
  };
  struct Total {
    std::string name;
    std::string family;
    int64_t calls = 0, nanoseconds = 0;
  };
  struct Kept {
    std::vector<MemoryEvent> memory;
    std::vector<Span> spans;  // the first kMaxSpans
    std::vector<Total> totals;
  };
  static constexpr size_t kMaxSpans = 1 << 19;

  // Of a device: what its library of matrix products takes at its first use in a thread and on a stream, and
  // what it takes once for products to which a bias is added.
  struct Workspace {
    size_t bytes, linear_bytes;
    // Multiprocessors and their threads: how sums are split, and hence where partial sums need memory.
    ReductionUnits units;
  };

  // `at_peak` is called, with no lock held, where a device has more memory in use than ever before.
  // `is_backward`: whether the calling thread runs a backward pass, which has threads of its own on a chip.
  PlanRecorder(std::function<void(int device)> at_peak, std::function<bool()> is_backward,
               std::vector<Workspace> workspaces);

  void begin(const Command& command) override;
  void end(const Command& command) override;

  Kept kept() const;
  // How many events of memory there are.
  size_t position() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_.memory.size();
  }
  // Takes the memory of the workspaces back.
  void release_workspaces() noexcept;

 private:
  // A user of a library: the thread, whether it runs a backward pass, and the stream.
  using Lane = std::tuple<std::thread::id, bool, int64_t>;
  struct Taken {
    std::set<Lane> lanes;
    bool has_linear = false;
    std::vector<void*> blocks;
  };

  // What the chip's library takes for a kernel, beside its operands and results.
  void take_library_memory(const Command& command);
  // For as long as a sum runs.
  void take_partial_sums(const Command& command, const Workspace& workspace);
  // At the first matrix product of a lane, and of a device with a bias; until the end of the plan.
  void take_workspaces(const Command& command, const Workspace& workspace);
  // Of the allocator, marked as a workspace; thrown: that memory runs out.
  void* take(int device, int64_t stream, size_t bytes);
  // The same until the end of the plan.
  void keep(const Command& command, size_t bytes);

  const std::function<void(int)> at_peak_;
  const std::function<bool()> is_backward_;
  const std::vector<Workspace> workspaces_;
  mutable std::mutex mutex_;
  Kept kept_;
  std::unordered_map<uint64_t, int64_t> bytes_;  // of what is in use
  std::vector<int64_t> used_, peak_;
  std::unordered_map<const void*, int32_t> places_;  // among totals, by op
  std::map<std::string, int32_t> places_by_name_;
  std::vector<Taken> taken_;  // by device; under the lock
  static inline thread_local bool takes_workspace = false;
};

}  // namespace loom::runtime
