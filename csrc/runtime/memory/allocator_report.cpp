// What the allocator reports: statistics, the message of an OutOfMemory, snapshots.
#include <algorithm>

#include "runtime/memory/caching_allocator.h"
#include "util/host_memory.h"

namespace loom::runtime {

AllocatorStats CachingAllocator::stats() const {
  Guard lock(lock_);
  AllocatorStats stats = stats_;
  stats.cached_bytes.current = stats.reserved_bytes[0].current - stats.active_bytes[0].current;
  return stats;
}

void CachingAllocator::reset_peak_stats() {
  Guard lock(lock_);
  stats_.cached_bytes.current = stats_.reserved_bytes[0].current - stats_.active_bytes[0].current;
  stats_.reset_peaks();
}

void CachingAllocator::reset_accumulated_stats() {
  Guard lock(lock_);
  stats_.reset_accumulated();
}

void CachingAllocator::attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  Guard lock(lock_);
  observers_.push_back(std::move(observer));
}

std::string CachingAllocator::out_of_memory_message(size_t asked, size_t alloc_bytes, bool is_sourced,
                                                    driver::MemoryInfo memory) const {
  constexpr size_t kExabyte = size_t{1} << 60;
  if (asked >= kExabyte) return "out of memory. Tried to allocate more than 1EB memory.";
  const auto text = [](size_t bytes) {
    return format_bytes(static_cast<int64_t>(std::min(bytes, static_cast<size_t>(INT64_MAX))));
  };
  const auto allocated = static_cast<size_t>(stats_.allocated_bytes[0].current);
  const auto reserved = static_cast<size_t>(stats_.reserved_bytes[0].current);
  const size_t in_private = private_bytes();
  std::string message = "out of memory. Tried to allocate " + text(alloc_bytes) + ". GPU " +
                        std::to_string(logical_device_) + " has a total capacity of " +
                        format_bytes(memory.total_bytes) + " of which " + format_bytes(memory.free_bytes) +
                        " is free. ";
  const auto in_use = static_cast<size_t>(std::max<int64_t>(memory.total_bytes - memory.free_bytes, 0));
  message += "Including non-PyTorch memory, this process has " + text(std::max(in_use, reserved)) +
             " memory in use. ";
  if (fraction_) message += text(limit_bytes()) + " allowed; ";
  message += "Of the allocated memory " + text(allocated) + " is allocated by PyTorch, ";
  if (in_private > 0) {
    message += "with " + text(in_private) + " allocated in private pools (e.g., CUDA Graphs), ";
  }
  message += "and " + text(reserved - allocated) + " is reserved by PyTorch but unallocated. ";
  // What CUDA does not say stands here, so that its sentences are found whole.
  message += text(static_cast<size_t>(stats_.inactive_split_bytes[0].current)) +
             " of it is in segments that are split and cannot be given back. ";
  if (asked != alloc_bytes) message += text(asked) + " asked for. ";
  if (is_sourced) message += "The pluggable allocator, which gives the memory, returned null. ";
  const bool is_device_full = alloc_bytes > static_cast<size_t>(std::max<int64_t>(memory.free_bytes, 0)) ||
                              (fraction_ && reserved + alloc_bytes > limit_bytes());
  if (!is_device_full && !is_sourced) {
    message += "The device has room, but " + host_memory::describe() +
               "; a dry run (torch.loom.dry_run) plans the program without that memory. ";
  }
  return message +
         "If reserved but unallocated memory is large try setting "
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
         "Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
         "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
}

void CachingAllocator::throw_out_of_memory(Guard& lock, size_t bytes, size_t rounded, const Pool* pool,
                                           int64_t stream, Context context) {
  ++stats_.num_ooms;
  const bool is_exact = bytes > kMaxBytes || (pool != nullptr && !pool->is_cached);
  const size_t alloc_bytes = is_exact ? bytes : config_.segment_bytes(rounded);
  const bool is_sourced = pool != nullptr && source_of(*pool) != nullptr;
  const driver::MemoryInfo memory = memory_info();
  const size_t limit = limit_bytes();
  history_.record(TraceAction::kOutOfMemory, static_cast<uint64_t>(memory.free_bytes), bytes, stream, {},
                  std::move(context));
  const std::string message = out_of_memory_message(bytes, alloc_bytes, is_sourced, memory);
  const std::vector<OutOfMemoryObserver> observers = observers_;
  const auto clamp = [](size_t value) {
    return static_cast<int64_t>(std::min(value, static_cast<size_t>(INT64_MAX)));
  };
  // Observers may allocate, and may wait for Python's lock.
  lock.unlock();
  for (const OutOfMemoryObserver& observer : observers) {
    observer(logical_device_, clamp(alloc_bytes), clamp(limit), memory.free_bytes);
  }
  throw OutOfMemory(message, logical_device_, clamp(bytes), memory.free_bytes, memory.total_bytes);
}

void CachingAllocator::record_history(const HistoryOptions& options) {
  Guard lock(lock_);
  history_.configure(options);
}

void CachingAllocator::set_history_metadata(const std::string& text) {
  Guard lock(lock_);
  history_.set_metadata(text);
}

std::string CachingAllocator::history_metadata() const {
  Guard lock(lock_);
  return history_.metadata();
}

Context CachingAllocator::allocation_context(const void* address) const {
  Guard lock(lock_);
  const Block* block = live_.find(reinterpret_cast<uintptr_t>(address));
  return block == nullptr || block->extra == nullptr ? nullptr : block->extra->context;
}

SegmentInfo CachingAllocator::describe(const Block& first) const {
  const Segment& segment = *first.segment;
  SegmentInfo info{first.address,
                   0,
                   0,
                   0,
                   0,
                   segment.stream,
                   !segment.pool->is_small,
                   segment.is_expandable(),
                   segment.pool->owner == nullptr ? PoolId{} : segment.pool->owner->id,
                   segment.context,
                   {}};
  for (const Block* block = &first; block != nullptr && block->mapped; block = block->next) {
    const bool active = !block->is_free() && !block->leaving;
    info.total += block->size;
    if (block->allocated) info.allocated += block->size;
    if (active) {
      info.active += block->size;
      info.requested += block->requested;
    }
    info.blocks.push_back({block->address, block->size, active ? block->requested : 0, block->allocated,
                           active, block->extra == nullptr ? nullptr : block->extra->context});
  }
  return info;
}

MemorySnapshot CachingAllocator::snapshot(PoolId pool, bool with_trace) {
  Guard lock(lock_);
  MemorySnapshot result;
  size_t total_active = 0;
  for (const Segment* segment : segments_) {
    // Of an expandable segment each stretch of mapped memory is shown as one.
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (!block->mapped || (block->previous != nullptr && block->previous->mapped)) continue;
      SegmentInfo info = describe(*block);
      total_active += info.active;
      if (pool == PoolId{} || pool == info.pool) result.segments.push_back(std::move(info));
    }
  }
  std::sort(result.segments.begin(), result.segments.end(),
            [](const SegmentInfo& left, const SegmentInfo& right) { return left.address < right.address; });
  // A snapshot is no part of its own history, as in CUDA.
  if (with_trace) result.trace = history_.entries();
  history_.record(TraceAction::kSnapshot, 0, total_active, 0, pool);
  return result;
}

}  // namespace loom::runtime
