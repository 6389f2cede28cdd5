// What the allocator did, kept for PyTorch's memory viewer. Off, it costs a branch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace loom::runtime {

// A private pool's name, PyTorch's MempoolId_t; {0, 0} is the allocator's own pools.
using PoolId = std::pair<uint64_t, uint64_t>;

// The program's call stack: opaque here, made and read by the code that installed the recorder.
using Context = std::shared_ptr<void>;
using ContextRecorder = Context (*)();

enum class RecordContext { kNever = 0, kState = 1, kAlloc = 2, kAll = 3 };

// In the order of PyTorch's TraceEntry::Action.
enum class TraceAction {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOutOfMemory,
};

struct TraceEntry {
  TraceAction action;
  uint64_t address;  // of kOutOfMemory: the bytes that were free on the device
  size_t bytes;
  int64_t stream;
  PoolId pool;
  int64_t time_us;  // since 1970
  Context context;
  std::shared_ptr<const std::string> metadata;  // null: none
};

struct HistoryOptions {
  bool enabled = false;
  ContextRecorder recorder = nullptr;
  RecordContext when = RecordContext::kNever;
  size_t max_entries = 0;
  bool clear = false;
  uint32_t skipped_actions = 0;  // bit i: TraceAction i
};

// The allocator calls it with its lock held, except gather().
class MemoryHistory {
 public:
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
  void configure(const HistoryOptions& options);
  // Not under the allocator's lock: the recorder may wait for Python's.
  Context gather(RecordContext level) const {
    if (!enabled()) [[likely]] {
      return nullptr;
    }
    return gather_now(level);
  }
  void record(TraceAction action, uint64_t address, size_t bytes, int64_t stream, PoolId pool,
              Context context = nullptr) {
    if (!enabled()) [[likely]] {
      return;
    }
    record_now({action, address, bytes, stream, pool, 0, std::move(context), metadata_});
  }
  // Whether alloc contexts belong into the trace, not only to live blocks.
  bool traces_context() const noexcept {
    return when_.load(std::memory_order_relaxed) >= static_cast<int>(RecordContext::kAlloc);
  }
  std::vector<TraceEntry> entries() const;  // oldest first
  void set_metadata(const std::string& text);
  std::string metadata() const { return metadata_ ? *metadata_ : std::string(); }

 private:
  Context gather_now(RecordContext level) const;
  void record_now(TraceEntry entry);

  std::atomic<bool> enabled_{false};
  std::atomic<ContextRecorder> recorder_{nullptr};
  std::atomic<int> when_{0};
  uint32_t skipped_actions_ = 0;
  size_t max_entries_ = 0;
  size_t next_ = 0;  // once the buffer is full: where the oldest entry is
  std::vector<TraceEntry> entries_;
  std::shared_ptr<const std::string> metadata_;
};

}  // namespace loom::runtime
