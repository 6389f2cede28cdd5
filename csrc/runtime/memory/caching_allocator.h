// The caching allocator of one device: CUDA's rules (design.md §4) over the driver's allocate and deallocate.
// No PyTorch header: it is tested without PyTorch.
//
// Seven files: caching_allocator.cpp hands out and takes back blocks, allocator_segments.cpp gets segments
// from the driver and gives them back, expandable_segments.cpp does so for those that grow and shrink,
// sourced_segments.cpp for those of other sources and those that are not cached, private_pools.cpp chooses
// the pool of an allocation, pool_checkpoints.cpp keeps and puts back what a private pool holds,
// allocator_report.cpp reports statistics, errors and snapshots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "runtime/blocking.h"
#include "runtime/capture.h"
#include "runtime/memory/allocator_config.h"
#include "runtime/memory/allocator_stats.h"
#include "runtime/memory/memory_history.h"
#include "runtime/memory/memory_pool.h"
#include "runtime/memory/segment_placement.h"
#include "runtime/tape.h"
#include "util/spin.h"

namespace loom::runtime {

// What record_stream() takes for a stream of another device than the allocator's own.
constexpr int kForeignShift = 32;
constexpr int64_t foreign_stream(int device, int64_t id) {
  return (int64_t{device} + 1) << kForeignShift | id;
}

// The streams of the allocator's device.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Also of a foreign_stream(). Throws InvalidArgument for an id that no stream has.
  virtual driver::Stream stream(int64_t id) const = 0;
  virtual std::vector<driver::Stream> all() const = 0;
};

// An allocation failed: device, bytes that were to be taken from it, bytes that the process may take, bytes
// that are free on it.
using OutOfMemoryObserver =
    std::function<void(int device, int64_t alloc_bytes, int64_t limit_bytes, int64_t free_bytes)>;

struct BlockInfo {
  uintptr_t address;
  size_t size, requested;
  bool allocated, active;  // active and not allocated: waits for streams that were recorded on it
  Context context;
};

struct SegmentInfo {
  uintptr_t address;
  size_t total, allocated, active, requested;  // bytes
  int64_t stream;
  bool is_large, is_expandable;
  PoolId pool;
  Context context;
  std::vector<BlockInfo> blocks;
};

struct MemorySnapshot {
  std::vector<SegmentInfo> segments;  // by address
  std::vector<TraceEntry> trace;      // oldest first
};

// Which parts of a private pool's memory were in use.
struct PoolCheckpoint {
  struct Part {
    uintptr_t address;
    size_t bytes, requested;
  };
  struct SegmentState {
    uintptr_t address;
    size_t bytes;
    std::vector<Part> parts;  // those in use, in the order of their addresses
  };
  PoolId id;
  std::vector<SegmentState> segments;
};

// What a checkpoint that was put back has changed, by addresses: all that was in use, and all that is now.
struct PoolRestored {
  std::vector<uintptr_t> freed, allocated;
};

// A new private pool's name: {0, n} for pools that a user makes, {n, 0} for those of graphs.
PoolId new_pool_id(bool user_created);

// Called without a lock when a device is short of memory, before its cache is flushed: frees what is kept for
// other processes and no longer used by any. True if that freed anything.
void set_reclaimer(bool (*reclaim)()) noexcept;

class CachingAllocator {
 public:
  // Which allocations go to a private pool: by the stream they are for. Called with the lock held.
  using Filter = std::function<bool(int64_t stream)>;

  CachingAllocator(driver::Driver& driver, int driver_index, int logical_device,
                   std::unique_ptr<StreamSource> streams);
  ~CachingAllocator();

  // Memory for use on `stream`; blocks are reused within one stream only. Null for 0 bytes.
  // Throws OutOfMemory with all numbers after the cache was flushed and tried again; live blocks stay as they
  // were.
  void* allocate(size_t bytes, int64_t stream);
  // Returns a block to the cache. Throws InvalidArgument when `address` is no live block's start; null is a
  // no-op.
  void deallocate(void* address);
  // The block is used on a further stream: once freed, it is not reused before that stream has passed the
  // point that it had reached at the free. Does nothing for an address that is no live block's start. Throws
  // InvalidArgument for a stream that does not exist.
  void record_stream(void* address, int64_t stream);
  // Bytes of the block that starts at `address`, 0 if there is none.
  size_t block_bytes(const void* address) const;
  // Where the block in use that has `address` begins, and the bytes asked for it; {0, 0} if none has it.
  // Looks at each segment.
  std::pair<uintptr_t, size_t> block_around(const void* address) const;

  // Gives back to the driver every cached segment that is not split, after waiting for the device's streams.
  // {0, 0}: of all pools but the private ones in use; else of that private pool, if it is no longer in use.
  void empty_cache(PoolId pool = {0, 0});

  void configure(const AllocatorConfig& config);
  // The share of the device's memory that this process may take, 0 … 1. Throws InvalidArgument for others.
  void set_memory_fraction(double fraction);
  double memory_fraction() const;

  // Private pools. A pool lives while it has users or segments: use_pool() makes it at first use, and each
  // use ends with release_pool(). Between begin and end, allocations that `filter` accepts are made from it.
  // `capturing`: a graph is being captured, so no event may be asked and nothing be given back. Throw
  // InvalidArgument for a pool that is unknown, or begun twice.
  // `source`, of the first use, is where the pool's segments come from; null: where others come from.
  void use_pool(PoolId id, bool use_on_oom = false, bool no_split = false, SourceRef source = nullptr);
  void begin_allocate_to_pool(PoolId id, Filter filter, bool capturing, SourceRef source = nullptr);
  void end_allocate_to_pool(PoolId id);
  void release_pool(PoolId id);
  int pool_use_count(PoolId id) const;

  // The state of a private pool. restore() frees all of the pool's blocks, even held ones, and takes those
  // again that were in use: their contents are what the memory has. Segments that came since are free.
  // Nothing may use the pool meanwhile. Throw InvalidArgument for a pool that is unknown, or has given
  // segments of the checkpoint back, and Error where other streams still use its blocks.
  PoolCheckpoint checkpoint(PoolId id);
  PoolRestored restore(const PoolCheckpoint& checkpoint);
  // The pool's blocks in use: where each starts, and its bytes.
  std::map<uintptr_t, size_t> blocks_in_use(PoolId id) const;

  // Whether it has ever asked its driver for memory.
  bool has_reserved() const noexcept { return has_reserved_.load(std::memory_order_relaxed); }
  AllocatorStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();
  driver::MemoryInfo memory_info() const { return driver_.memory_info(driver_index_); }
  // Observers are called without the lock, before OutOfMemory is thrown.
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);

  void record_history(const HistoryOptions& options);
  void set_history_metadata(const std::string& text);
  std::string history_metadata() const;
  // Where the block that starts at `address` was allocated; null if that was not recorded.
  Context allocation_context(const void* address) const;
  // {0, 0}: all pools; else only that private pool.
  MemorySnapshot snapshot(PoolId pool, bool with_trace);

 private:
  using Guard = std::unique_lock<driver::SpinMutex>;
  struct Capture {
    PoolId id;
    Filter filter;
    bool capturing;
  };
  struct PendingEvent {
    driver::Event event;
    Block* block;
  };

  // caching_allocator.cpp
  Pool& pool_for(size_t rounded, int64_t stream);
  Block* find_free(Pool& pool, size_t rounded, int64_t stream);
  bool should_split(const Block& block, size_t rounded) const;
  void hand_out(Block* block, size_t bytes, size_t rounded, Context context);
  void count_allocated(Block& block, size_t bytes);
  void trace(TraceAction action, const Block& block, Context context);
  void free_block(Block* block, Context context);
  void join(Block* first, Block* second);
  void insert_free(Block* block);
  void erase_free(Block* block);
  // Cuts a block, which is in no index, after `bytes`, and returns the rest.
  Block* split_off(Block* block, size_t bytes);
  // To the tape. Without the lock: its readers may allocate.
  void notify(CommandKind kind, const void* address, size_t bytes, int64_t stream) const;
  void notify_free(const void* address) const;
  // Not under the lock: any call may make a driver run queued work, and that work frees memory.
  void record_deferred();
  void process_events();
  void note_pending() { has_pending_ = !deferred_.empty() || !pending_.empty() || num_asking_ != 0; }
  // A graph is being captured: recording and asking events would become part of it.
  bool may_not_ask_events() const { return num_capturing_ != 0 || capture::is_underway(); }

  // allocator_segments.cpp
  Block* grow(Guard& lock, Pool& pool, size_t bytes, size_t rounded, int64_t stream, const Context& context);
  Block* new_segment(Guard& lock, Pool& pool, size_t rounded, int64_t stream, const Context& context);
  Block* add_segment(Pool& pool, int64_t stream, void* memory, size_t bytes, const Context& context);
  Segment* make_segment(Pool& pool, int64_t stream, size_t page_bytes, void* memory, size_t bytes,
                        const Context& context);
  bool is_short_of_host(const Pool& pool, size_t rounded) const;
  // True where the process may not take so many bytes more.
  bool exceeds_limit(size_t bytes) const;
  void* take_from_driver(size_t bytes, driver::Place place = {});
  void flush(Guard& lock, int64_t stream, PoolId only);
  // Out of use: the only block of a segment, or a block with whole pages of an expandable one.
  void take_out(Block* block, std::vector<Block*>& blocks);
  void collect(Pool& pool, std::vector<Block*>& blocks);
  bool release_oversize(Guard& lock, Pool& pool, size_t rounded, int64_t stream);
  void collect_garbage(Guard& lock, int64_t stream);
  void give_back(Guard& lock, std::vector<Block*> blocks, int64_t stream);
  bool wait_for_others(Guard& lock, int64_t stream);
  // `context`: where it was given back, null where that is not recorded.
  void destroy(Segment* segment, const Context& context);
  void forget(Segment* segment);
  bool wait_for_device(int64_t stream);
  bool drain(driver::Stream stream);
  size_t limit_bytes() const;

  // expandable_segments.cpp
  Block* extend_segment(Pool& pool, size_t rounded, int64_t stream, const Context& context);
  Block* begin_expandable(Pool& pool, size_t rounded, int64_t stream, const Context& context);
  Block* find_growable(Pool& pool, size_t rounded, int64_t stream) const;
  Block* choose_expandable(const FreeBlocks& free_blocks, Block* block) const;
  Block* map_block(Block* block, size_t bytes, const Context& context);
  void unmap_block(Block* block, const Context& context);
  Block* settle(Block* block);
  void note_mapped(const Block& block, size_t bytes, const Context& context);

  // sourced_segments.cpp
  static SourceRef source_of(const Pool& pool) {
    return pool.owner != nullptr ? pool.owner->source : memory_mode::source();
  }
  Block* sourced_segment(Guard& lock, Pool& pool, const SourceRef& source, size_t bytes, int64_t stream,
                         const Context& context);
  void return_to_source(const Segment& segment) noexcept;
  void return_uncached(Guard& lock);

  // private_pools.cpp
  void erase_unused_pools();
  Block* borrow_from_private_pools(bool is_small, size_t rounded, int64_t stream);
  size_t private_bytes() const;

  // pool_checkpoints.cpp
  PrivatePool& existing_pool(PoolId id) const;
  std::vector<Segment*> segments_of(const PrivatePool& pool) const;
  void refuse_unsettled(const Block& block) const;
  void settle_frees();
  void free_parts(Segment& segment, PoolRestored& changed);
  void cut_as_kept(Segment& segment, const PoolCheckpoint::SegmentState& state, PoolRestored& changed);
  void take_part(Segment& segment, const PoolCheckpoint::Part& part);

  // allocator_report.cpp
  // `pool`: from which the memory was to come, null if that is all the same.
  [[noreturn]] void throw_out_of_memory(Guard& lock, size_t bytes, size_t rounded, const Pool* pool,
                                        int64_t stream, Context context);
  std::string out_of_memory_message(size_t asked, size_t alloc_bytes, bool is_sourced,
                                    driver::MemoryInfo memory) const;
  // The mapped blocks from `first` on.
  SegmentInfo describe(const Block& first) const;

  void increase(const Pool& pool, StatArray& stat, size_t amount) {
    stat[0].increase(static_cast<int64_t>(amount));
    stat[pool.is_small ? 1 : 2].increase(static_cast<int64_t>(amount));
  }
  void decrease(const Pool& pool, StatArray& stat, size_t amount) {
    stat[0].decrease(static_cast<int64_t>(amount));
    stat[pool.is_small ? 1 : 2].decrease(static_cast<int64_t>(amount));
  }
  void note_cached() {
    Stat& cached = stats_.cached_bytes;
    cached.current = stats_.reserved_bytes[0].current - stats_.active_bytes[0].current;
    if (cached.current > cached.peak) cached.peak = cached.current;
  }
  // A part of a split segment is or is not in use. Expandable segments are not counted: their free parts can
  // be given back.
  bool counts_as_split(const Block& block) const { return !block.segment->is_expandable(); }

  driver::Driver& driver_;
  const int driver_index_, logical_device_;
  const std::unique_ptr<StreamSource> streams_;

  mutable driver::SpinMutex lock_;  // guards everything below
  AllocatorConfig config_;
  AllocatorStats stats_;
  MemoryHistory history_;
  BlockStore store_;
  LiveBlocks live_;
  Pool small_{true, nullptr}, large_{false, nullptr};
  Pool small_uncached_{true, nullptr, false}, large_uncached_{false, nullptr, false};
  std::map<PoolId, std::unique_ptr<PrivatePool>> private_pools_;
  std::vector<Capture> captures_;
  std::atomic<int> num_capturing_{0};
  std::atomic<bool> has_reserved_{false};
  std::vector<Segment*> segments_;
  std::vector<Segment*> uncached_;       // out of use, and not given back yet
  std::atomic<int> num_giving_back_{0};  // threads that hold segments out of use; changed under the lock
  SegmentPlacement placement_;
  std::optional<double> fraction_;
  std::map<int64_t, std::deque<PendingEvent>> pending_;  // by stream, oldest first
  std::vector<Block*> deferred_;          // freed, and their events not recorded yet: after a capture
  int num_asking_ = 0;                    // threads that took some out of either of the two meanwhile
  std::atomic<bool> has_pending_{false};  // there are any
  std::vector<driver::Event> spare_events_;
  std::vector<OutOfMemoryObserver> observers_;
};

}  // namespace loom::runtime
