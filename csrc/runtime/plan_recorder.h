// What a dry run keeps of the commands of its devices: memory that was taken and given back, and when each
// command runs by the simulated clock. A reader of the tape, attached after that clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
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

  // What this thread allocates while one lives is marked as a workspace.
  class TakingWorkspace {
   public:
    TakingWorkspace() { takes_workspace = true; }
    ~TakingWorkspace() { takes_workspace = false; }
    TakingWorkspace(const TakingWorkspace&) = delete;
    TakingWorkspace& operator=(const TakingWorkspace&) = delete;
  };

  // `at_peak` is called, with no lock held, where a device has more memory in use than ever before.
  // `units`, by device: multiprocessors and their threads, which say how sums are split, and hence where
  // partial sums need memory.
  PlanRecorder(std::function<void(int device)> at_peak, std::vector<ReductionUnits> units);

  void begin(const Command& command) override;
  void end(const Command& command) override;

  Kept kept() const;
  // How many events of memory there are.
  size_t position() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_.memory.size();
  }

 private:
  // What a sum takes beside its operands and results, for as long as it runs. Thrown: that memory runs out.
  void take_partial_sums(const Command& command);

  const std::function<void(int)> at_peak_;
  const std::vector<ReductionUnits> units_;
  mutable std::mutex mutex_;
  Kept kept_;
  std::unordered_map<uint64_t, int64_t> bytes_;  // of what is in use
  std::vector<int64_t> used_, peak_;
  std::unordered_map<const void*, int32_t> places_;  // among totals, by op
  std::map<std::string, int32_t> places_by_name_;
  static inline thread_local bool takes_workspace = false;
};

}  // namespace loom::runtime
