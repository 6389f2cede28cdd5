// Segments: taken from the driver when no cached block fits, given back when memory runs short or on request.
#include <algorithm>
#include <atomic>
#include <exception>

#include "runtime/commands.h"
#include "runtime/ipc/activity_board.h"
#include "runtime/memory/caching_allocator.h"
#include "util/host_memory.h"

namespace loom::runtime {

namespace {

std::atomic<bool (*)()> reclaimer{nullptr};

// Of one allocation, while other threads take what it gave back.
constexpr int kMaxFlushes = 32;

// Counts one more while it lives; its end wakes threads that wait for zero.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() {
    --count_;
    count_.notify_all();
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

void set_reclaimer(bool (*reclaim)()) noexcept { reclaimer = reclaim; }

size_t CachingAllocator::limit_bytes() const {
  const auto total = static_cast<double>(memory_info().total_bytes);
  return static_cast<size_t>(fraction_ ? *fraction_ * total : total);
}

void CachingAllocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction <= 1.0)) {
    throw InvalidArgument("Invalid fraction value: " + std::to_string(fraction) + ". Allowed range: 0~1");
  }
  Guard lock(lock_);
  fraction_ = fraction;
}

double CachingAllocator::memory_fraction() const {
  Guard lock(lock_);
  return fraction_.value_or(1.0);
}

// A free block of at least `rounded` bytes. Throws OutOfMemory.
Block* CachingAllocator::grow(Guard& lock, Pool& pool, size_t bytes, size_t rounded, int64_t stream,
                              const Context& context) {
  if (config_.garbage_collection_threshold > 0.0 && num_capturing_ == 0) collect_garbage(lock, stream);
  if (is_short_of_host(pool, rounded)) {
    flush(lock, stream, {0, 0});
    if (Block* block = find_free(pool, rounded, stream)) return block;
  }
  if (Block* block = new_segment(lock, pool, rounded, stream, context)) return block;
  if (const auto reclaim = reclaimer.load(); reclaim != nullptr && num_capturing_ == 0) {
    lock.unlock();
    const bool has_freed = reclaim();
    lock.lock();
    if (has_freed) {
      if (Block* block = find_free(pool, rounded, stream)) return block;
    }
  }
  if (release_oversize(lock, pool, rounded, stream)) {
    if (Block* block = new_segment(lock, pool, rounded, stream, context)) return block;
  }
  if (num_capturing_ == 0) {
    ++stats_.num_alloc_retries;
    // The lock is let go meanwhile: others may take what was given back, and leave more to be given back.
    for (int flushes = 0; flushes < kMaxFlushes; ++flushes) {
      const int64_t given_back = stats_.num_device_free;
      flush(lock, stream, {0, 0});
      const bool waited = wait_for_others(lock, stream);
      if (Block* block = find_free(pool, rounded, stream)) return block;
      if (Block* block = new_segment(lock, pool, rounded, stream, context)) return block;
      if (!waited && stats_.num_device_free == given_back) break;
    }
  }
  if (Block* block = borrow_from_private_pools(pool.is_small, rounded, stream)) return block;
  throw_out_of_memory(lock, bytes, rounded, &pool, stream, context);
}

// The driver gives large segments that the host cannot hold once they are written: what is cached may be in
// the way.
bool CachingAllocator::is_short_of_host(const Pool& pool, size_t rounded) const {
  const bool is_late = driver_.info().commits_late && rounded > host_memory::kWrittenSoonBytes;
  const bool has_cached = stats_.reserved_bytes[0].current != stats_.active_bytes[0].current;
  return is_late && has_cached && num_capturing_ == 0 && source_of(pool) == nullptr &&
         !host_memory::has_room(rounded);
}

bool CachingAllocator::exceeds_limit(size_t bytes) const {
  return fraction_ && static_cast<size_t>(stats_.reserved_bytes[0].current) + bytes > limit_bytes();
}

// Null when the device has no more.
void* CachingAllocator::take_from_driver(size_t bytes, driver::Place place) {
  try {
    void* memory = driver_.allocate(driver_index_, bytes, place);
    activity_board::note_memory(driver_, logical_device_, driver_index_);
    return memory;
  } catch (const OutOfMemory&) {
    return nullptr;
  }
}

Block* CachingAllocator::new_segment(Guard& lock, Pool& pool, size_t rounded, int64_t stream,
                                     const Context& context) {
  const SourceRef source = source_of(pool);
  const size_t bytes = pool.is_cached ? config_.segment_bytes(rounded) : rounded;
  if (source != nullptr) return sourced_segment(lock, pool, source, bytes, stream, context);
  if (exceeds_limit(bytes)) return nullptr;
  // A driver without rooms has plain segments, as CUDA has where the platform lacks virtual memory.
  if (config_.expandable_segments && pool.is_cached && driver_.info().memory_rooms)
    return extend_segment(pool, rounded, stream, context);
  if (capture::is_underway()) capture::forbid_memory({logical_device_, stream});
  void* memory = take_from_driver(bytes);
  return memory == nullptr ? nullptr : add_segment(pool, stream, memory, bytes, context);
}

// One block, which is in no index.
Segment* CachingAllocator::make_segment(Pool& pool, int64_t stream, size_t page_bytes, void* memory,
                                        size_t bytes, const Context& context) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const Position position = page_bytes != 0 ? placement_.place_growing() : placement_.place(bytes);
  Block* const block = store_.take();
  auto* segment = new Segment{&pool, stream, position,         page_bytes, address,
                              bytes, block,  segments_.size(), context,    /*source=*/nullptr};
  segments_.push_back(segment);
  block->address = address;
  block->position = position;
  block->size = bytes;
  block->segment = segment;
  if (pool.owner != nullptr) ++pool.owner->num_segments;
  has_reserved_.store(true, std::memory_order_relaxed);
  return segment;
}

Block* CachingAllocator::add_segment(Pool& pool, int64_t stream, void* memory, size_t bytes,
                                     const Context& context) {
  Segment* const segment = make_segment(pool, stream, /*page_bytes=*/0, memory, bytes, context);
  increase(pool, stats_.segment, 1);
  increase(pool, stats_.reserved_bytes, bytes);
  if (bytes >= config_.max_split_bytes) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  history_.record(TraceAction::kSegmentAlloc, segment->address, bytes, stream,
                  pool.owner == nullptr ? PoolId{} : pool.owner->id, context);
  insert_free(segment->first);
  return segment->first;
}

// Out of the index of free blocks, and joined with no other.
void CachingAllocator::take_out(Block* block, std::vector<Block*>& blocks) {
  blocks.push_back(block);
  erase_free(block);
  block->leaving = true;
}

// Takes out what of a pool can be given back: in CUDA's order, which its history shows.
void CachingAllocator::collect(Pool& pool, std::vector<Block*>& blocks) {
  const std::vector<Block*> free_blocks = pool.all_free_blocks();
  for (Block* block : free_blocks) {
    if (!block->segment->is_expandable() && !block->is_split()) take_out(block, blocks);
  }
  for (Block* block : free_blocks) {
    if (block->segment->is_expandable() && whole_pages(*block).second != 0) take_out(block, blocks);
  }
}

void CachingAllocator::empty_cache(PoolId pool) {
  Guard lock(lock_);
  flush(lock, 0, pool);
}

void CachingAllocator::flush(Guard& lock, int64_t stream, PoolId only) {
  if (has_pending_ && !may_not_ask_events()) {
    // What waits for other streams becomes free, and may make a segment whole.
    lock.unlock();
    call_blocking([&] {
      wait_for_device(stream);
      process_events();
    });
    lock.lock();
  }
  if (only == PoolId{}) ++stats_.num_sync_all_streams;
  std::vector<Block*> blocks;
  if (only == PoolId{}) {
    collect(large_, blocks);
    collect(small_, blocks);
  }
  for (auto& [id, pool] : private_pools_) {
    if (pool->use_count != 0 || (only != PoolId{} && only != id)) continue;
    collect(pool->small, blocks);
    collect(pool->large, blocks);
  }
  give_back(lock, std::move(blocks), stream);
}

// With a split limit: one cached block above the limit that is large enough goes back, or else several, the
// largest first. True when that makes room for the request.
bool CachingAllocator::release_oversize(Guard& lock, Pool& pool, size_t rounded, int64_t stream) {
  if (config_.max_split_bytes == AllocatorConfig::kUnlimited || num_capturing_ != 0) return false;
  const size_t wanted = std::max(rounded, config_.max_split_bytes);
  FreeBlocks& free_blocks = pool.free_blocks(stream);
  std::vector<Block*> chosen;
  const auto is_whole = [](const Block& block) {
    return !block.is_split() && !block.segment->is_expandable();
  };
  if (Block* block = free_blocks.find(wanted); block != nullptr && is_whole(*block)) {
    chosen.push_back(block);
  } else {
    const std::vector<Block*> all = free_blocks.all();
    size_t released = 0;
    for (auto each = all.rbegin(); each != all.rend() && released < wanted; ++each) {
      if ((*each)->size < config_.max_split_bytes) break;
      if (!is_whole(**each)) continue;
      released += (*each)->size;
      chosen.push_back(*each);
    }
    if (released < wanted) return false;
  }
  std::vector<Block*> blocks;
  for (Block* block : chosen) take_out(block, blocks);
  give_back(lock, std::move(blocks), stream);
  return true;
}

// Above the threshold, cached large segments go back until it is met, those first that were not used for the
// longest.
void CachingAllocator::collect_garbage(Guard& lock, int64_t stream) {
  const double threshold = config_.garbage_collection_threshold * static_cast<double>(limit_bytes());
  const auto reserved = static_cast<double>(stats_.reserved_bytes[0].current);
  if (reserved <= threshold) return;
  const double target = reserved - threshold;
  const auto age = [&](const Block* block) { return large_.num_searches - block->freed_at; };
  std::vector<Block*> candidates;
  double total_age = 0.0;
  for (Block* block : large_.all_free_blocks()) {
    if (block->is_split() || block->segment->is_expandable()) continue;
    candidates.push_back(block);
    total_age += static_cast<double>(age(block));
  }
  std::vector<Block*> blocks;
  double reclaimed = 0.0;
  for (bool found = true; found && reclaimed < target && !candidates.empty();) {
    const double old = total_age / static_cast<double>(candidates.size());
    std::vector<Block*> younger;
    found = false;
    for (Block* block : candidates) {
      if (static_cast<double>(age(block)) < old) {
        younger.push_back(block);
        continue;
      }
      found = true;
      reclaimed += static_cast<double>(block->size);
      total_age -= static_cast<double>(age(block));
      take_out(block, blocks);
    }
    candidates = std::move(younger);
  }
  give_back(lock, std::move(blocks), stream);
}

// Waits until the work submitted to `stream` so far has finished. False when this thread runs a kernel of
// that stream: everything before that kernel has finished then.
bool CachingAllocator::drain(driver::Stream stream) {
  try {
    untold::drain_stream(driver_, stream);
  } catch (const InvalidArgument&) {
    return false;
  }
  return true;
}

// Waits for all streams of the device; for none, and returns false, when the calling thread runs a kernel of
// `stream`: another stream's kernel might wait for this kernel in the same way.
bool CachingAllocator::wait_for_device(int64_t stream) {
  if (!drain(streams_->stream(stream))) return false;
  for (const driver::Stream each : streams_->all()) drain(each);
  if (tape::is_told(CommandKind::kSynchronizeDevice)) [[unlikely]] {
    notify(CommandKind::kSynchronizeDevice, nullptr, 0, -1);
  }
  return true;
}

// Gives blocks, which are out of use, to the driver. The lock is let go while the device is waited for: its
// kernels may allocate. When that throws, the blocks are cached as before.
void CachingAllocator::give_back(Guard& lock, std::vector<Block*> blocks, int64_t stream) {
  if (blocks.empty()) return;
  std::vector<Block*> used;
  std::exception_ptr failure;
  lock.unlock();
  const Context context = history_.gather(RecordContext::kAll);
  const FreeMutex::Shared may_free;
  const Counted counted(num_giving_back_);
  try {
    call_blocking([&] {
      if (wait_for_device(stream)) return;
      const auto unused = std::stable_partition(blocks.begin(), blocks.end(), [&](const Block* block) {
        return block->segment->stream == stream ||
               untold::query_stream(driver_, streams_->stream(block->segment->stream));
      });
      used.assign(unused, blocks.end());
      blocks.erase(unused, blocks.end());
    });
    for (const Block* block : blocks) return_to_source(*block->segment);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure != nullptr) used.insert(used.end(), blocks.begin(), blocks.end());
  for (Block* block : used) {
    block->leaving = false;
    settle(block);
  }
  if (failure == nullptr) {
    for (Block* block : blocks) {
      block->segment->is_expandable() ? unmap_block(block, context) : destroy(block->segment, context);
    }
  }
  erase_unused_pools();
  if (failure != nullptr) std::rethrow_exception(failure);
}

// Another thread holds memory that it has not given back yet: waits for that, and returns true. Returns
// false at once where there is none, or where that thread may be waiting for the kernel that this thread
// runs.
bool CachingAllocator::wait_for_others(Guard& lock, int64_t stream) {
  if (num_giving_back_ == 0) return false;
  bool waited = false;
  lock.unlock();
  call_blocking([&] {
    waited = drain(streams_->stream(stream));
    if (!waited) return;
    for (int others = num_giving_back_; others != 0; others = num_giving_back_) num_giving_back_.wait(others);
  });
  lock.lock();
  return waited;
}

void CachingAllocator::destroy(Segment* segment, const Context& context) {
  Pool& pool = *segment->pool;
  if (segment->source == nullptr) driver_.deallocate(reinterpret_cast<void*>(segment->address));
  ++stats_.num_device_free;
  activity_board::note_memory(driver_, logical_device_, driver_index_);
  decrease(pool, stats_.segment, 1);
  decrease(pool, stats_.reserved_bytes, segment->bytes);
  note_cached();
  if (segment->bytes >= config_.max_split_bytes) stats_.oversize_segments.decrease(1);
  history_.record(TraceAction::kSegmentFree, segment->address, segment->bytes, segment->stream,
                  pool.owner == nullptr ? PoolId{} : pool.owner->id,
                  context != nullptr ? context : segment->context);
  placement_.remove(segment->position, segment->bytes);
  forget(segment);
}

void CachingAllocator::forget(Segment* segment) {
  Pool& pool = *segment->pool;
  if (pool.owner != nullptr) --pool.owner->num_segments;
  store_.give_back(segment->first);
  segments_.back()->index = segment->index;
  segments_[segment->index] = segments_.back();
  segments_.pop_back();
  delete segment;
}

}  // namespace loom::runtime
