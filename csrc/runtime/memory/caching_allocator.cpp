#include "runtime/memory/caching_allocator.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "runtime/commands.h"
#include "runtime/memory/running_kernels.h"

namespace loom::runtime {

CachingAllocator::CachingAllocator(driver::Driver& driver, int driver_index, int logical_device,
                                   std::unique_ptr<StreamSource> streams)
    : driver_(driver),
      driver_index_(driver_index),
      logical_device_(logical_device),
      streams_(std::move(streams)) {}

CachingAllocator::~CachingAllocator() {
  for (auto& [stream, events] : pending_) {
    for (const PendingEvent& pending : events) untold::destroy_event(driver_, pending.event);
  }
  for (const driver::Event event : spare_events_) untold::destroy_event(driver_, event);
  for (Segment* segment : segments_) delete segment;
}

void CachingAllocator::insert_free(Block* block) {
  Pool& pool = *block->segment->pool;
  block->freed_at = pool.num_searches;
  pool.free_blocks(block->segment->stream).insert(block);
}

void CachingAllocator::erase_free(Block* block) {
  block->segment->pool->free_blocks(block->segment->stream).erase(block);
}

Pool& CachingAllocator::pool_for(size_t rounded, int64_t stream) {
  const bool is_small = rounded <= kSmallBytes;
  if (!captures_.empty()) [[unlikely]] {
    // The innermost first: it began last.
    for (auto capture = captures_.rbegin(); capture != captures_.rend(); ++capture) {
      if (!capture->filter(stream)) continue;
      PrivatePool& pool = *private_pools_.at(capture->id);
      return is_small ? pool.small : pool.large;
    }
  }
  if (memory_mode::is_uncached()) [[unlikely]] {
    return is_small ? small_uncached_ : large_uncached_;
  }
  return is_small ? small_ : large_;
}

Block* CachingAllocator::find_free(Pool& pool, size_t rounded, int64_t stream) {
  ++pool.num_searches;
  FreeBlocks& free_blocks = pool.free_blocks(stream);
  Block* block = free_blocks.find(rounded);
  if (block != nullptr && block->segment->is_expandable()) [[unlikely]]
    block = choose_expandable(free_blocks, block);
  if (block == nullptr) return nullptr;
  // Blocks above the split limit serve large requests only, and only those of about their size.
  if (rounded < config_.max_split_bytes) {
    if (block->size >= config_.max_split_bytes) return nullptr;
  } else if (block->size >= rounded + config_.max_non_split_rounding_bytes) {
    return nullptr;
  }
  return block;
}

bool CachingAllocator::should_split(const Block& block, size_t rounded) const {
  const size_t remaining = block.size - rounded;
  const Pool& pool = *block.segment->pool;
  if (pool.owner != nullptr && pool.owner->no_split) return false;
  if (pool.is_small || block.segment->is_expandable()) return remaining >= kMinBlockBytes;
  return rounded < config_.max_split_bytes && remaining > kSmallBytes;
}

void* CachingAllocator::allocate(size_t bytes, int64_t stream) {
  if (bytes == 0) return nullptr;
  // Before the lock is taken: the recorder may wait for Python's.
  Context context = history_.gather(RecordContext::kState);
  if (has_pending_.load(std::memory_order_relaxed) && !may_not_ask_events()) [[unlikely]] {
    process_events();
  }
  Guard lock(lock_);
  if (bytes > kMaxBytes) throw_out_of_memory(lock, bytes, bytes, nullptr, stream, std::move(context));
  size_t rounded = config_.block_bytes(bytes);
  Pool& pool = pool_for(rounded, stream);
  if (!pool.is_cached) [[unlikely]] {
    rounded = bytes;
  }
  Block* block = find_free(pool, rounded, stream);
  const bool grows = block == nullptr;
  if (grows) [[unlikely]] {
    block = grow(lock, pool, bytes, rounded, stream, context);
  }
  hand_out(block, bytes, rounded, std::move(context));
  if (grows) note_cached();  // only now: what is handed out of a new segment was never cached
  void* const address = reinterpret_cast<void*>(block->address);
  lock.unlock();
  if (tape::is_told(CommandKind::kAllocate)) [[unlikely]] {
    try {
      notify(CommandKind::kAllocate, address, bytes, stream);
    } catch (...) {
      deallocate(address);
      throw;
    }
  }
  return address;
}

Block* CachingAllocator::split_off(Block* block, size_t bytes) {
  Block* const rest = store_.take();
  rest->address = block->address + bytes;
  rest->position = block->position + bytes;
  rest->size = block->size - bytes;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = bytes;
  return rest;
}

// Takes `block` out of the index of free blocks.
void CachingAllocator::hand_out(Block* block, size_t bytes, size_t rounded, Context context) {
  Pool& pool = *block->segment->pool;
  FreeBlocks& free_blocks = pool.free_blocks(block->segment->stream);
  const bool was_split = block->is_split();
  if (should_split(*block, rounded)) {
    const size_t size = block->size;
    Block* const rest = split_off(block, rounded);
    rest->freed_at = pool.num_searches;
    free_blocks.replace(size, block->position, rest);
    if (counts_as_split(*block)) {
      if (was_split) {
        decrease(pool, stats_.inactive_split_bytes, rounded);
      } else {
        increase(pool, stats_.inactive_split_bytes, rest->size);
        increase(pool, stats_.inactive_split, 1);
      }
    }
  } else {
    free_blocks.erase(block);
    if (was_split && counts_as_split(*block)) {
      decrease(pool, stats_.inactive_split_bytes, block->size);
      decrease(pool, stats_.inactive_split, 1);
    }
  }
  if (context != nullptr) [[unlikely]] {
    block->more().context = std::move(context);
  }
  count_allocated(*block, bytes);
}

// The block is in use from here on.
void CachingAllocator::count_allocated(Block& block, size_t bytes) {
  const Pool& pool = *block.segment->pool;
  block.allocated = true;
  block.requested = bytes;
  live_.insert(&block);
  increase(pool, stats_.allocation, 1);
  increase(pool, stats_.allocated_bytes, block.size);
  increase(pool, stats_.active, 1);
  increase(pool, stats_.active_bytes, block.size);
  increase(pool, stats_.requested_bytes, bytes);
  if (block.size >= config_.max_split_bytes) [[unlikely]] {
    stats_.oversize_allocations.increase(1);
  }
  if (history_.enabled()) [[unlikely]] {
    trace(TraceAction::kAlloc, block, block.extra == nullptr ? nullptr : block.extra->context);
  }
}

void CachingAllocator::trace(TraceAction action, const Block& block, Context context) {
  const PrivatePool* owner = block.segment->pool->owner;
  history_.record(action, block.address, block.requested, block.segment->stream,
                  owner == nullptr ? PoolId{} : owner->id, std::move(context));
}

void CachingAllocator::notify(CommandKind kind, const void* address, size_t bytes, int64_t stream) const {
  const int64_t other = stream >> kForeignShift;
  Command command = runtime::describe(kind, other == 0 ? logical_device_ : static_cast<int>(other) - 1,
                                      stream & ((int64_t{1} << kForeignShift) - 1));
  command.address = address;
  command.bytes = bytes;
  tape::note(command);
}

void CachingAllocator::deallocate(void* address) {
  if (address == nullptr) return;
  // Report the free before another thread can get the block.
  if (tape::is_told(CommandKind::kFree)) [[unlikely]] {
    notify_free(address);
  }
  Context context = history_.gather(RecordContext::kAll);
  Guard lock(lock_);
  Block* block = live_.find(reinterpret_cast<uintptr_t>(address));
  if (block == nullptr) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    throw InvalidArgument(std::string("the address ") + text + " is not a live allocation of device " +
                          std::to_string(logical_device_) + " (freed twice?)");
  }
  live_.erase(block->address);
  const Pool& pool = *block->segment->pool;
  decrease(pool, stats_.allocation, 1);
  decrease(pool, stats_.allocated_bytes, block->size);
  if (block->size >= config_.max_split_bytes) [[unlikely]] {
    stats_.oversize_allocations.decrease(1);
  }
  if (history_.enabled()) [[unlikely]] {
    const bool has_own = context == nullptr && block->extra != nullptr;
    trace(TraceAction::kFreeRequested, *block, has_own ? block->extra->context : context);
  }
  block->allocated = false;
  const bool is_cached = pool.is_cached;
  // Wait for its own stream too where that stream's order does not protect the block: uncached memory can be
  // reused by anyone, and a kernel that another thread runs in place takes memory at an earlier point.
  if (!is_cached || others_run_kernels(this, block->segment->stream)) [[unlikely]] {
    block->more().streams.insert(block->segment->stream);
  }
  if (block->extra != nullptr && !block->extra->streams.empty()) [[unlikely]] {
    ++block->extra->num_events;  // until its events are recorded
    deferred_.push_back(block);
    has_pending_ = true;
    lock.unlock();
    if (may_not_ask_events()) return;
    is_cached ? record_deferred() : process_events();
    return;
  }
  free_block(block, std::move(context));
}

// The block is free for reuse from here on.
void CachingAllocator::free_block(Block* block, Context context) {
  Pool& pool = *block->segment->pool;
  if (history_.enabled()) [[unlikely]] {
    if (context == nullptr && block->extra != nullptr) context = block->extra->context;
    trace(TraceAction::kFreeCompleted, *block, std::move(context));
  }
  decrease(pool, stats_.active, 1);
  decrease(pool, stats_.active_bytes, block->size);
  decrease(pool, stats_.requested_bytes, block->requested);
  note_cached();
  block->extra.reset();
  const auto size = static_cast<int64_t>(block->size);
  const auto joined = [](Block* neighbour) {
    return neighbour != nullptr && neighbour->is_free() ? neighbour : nullptr;
  };
  Block *const before = joined(block->previous), *const behind = joined(block->next);
  int64_t more_blocks = 0;
  // Of the neighbour whose entry in the index becomes that of the block.
  size_t known_size = 0;
  Position known_position = 0;
  if (behind != nullptr) {
    if (before != nullptr) erase_free(behind);
    known_size = behind->size;
    known_position = behind->position;
    join(block, behind);
    --more_blocks;
  }
  if (before != nullptr) {
    known_size = before->size;
    known_position = before->position;
    join(before, block);
    block = before;
    --more_blocks;
  }
  if (counts_as_split(*block)) {
    // As one change, so that peaks mean what is visible from outside.
    const bool is_split = block->is_split();
    more_blocks += is_split ? 1 : 0;
    const int64_t more_bytes = is_split ? size : size - static_cast<int64_t>(block->size);
    if (more_blocks > 0) increase(pool, stats_.inactive_split, static_cast<size_t>(more_blocks));
    if (more_blocks < 0) decrease(pool, stats_.inactive_split, static_cast<size_t>(-more_blocks));
    if (more_bytes > 0) increase(pool, stats_.inactive_split_bytes, static_cast<size_t>(more_bytes));
    if (more_bytes < 0) decrease(pool, stats_.inactive_split_bytes, static_cast<size_t>(-more_bytes));
  }
  if (!pool.is_cached) [[unlikely]] {
    block->leaving = true;
    uncached_.push_back(block->segment);
    return;
  }
  if (known_size == 0) return insert_free(block);
  block->freed_at = pool.num_searches;
  pool.free_blocks(block->segment->stream).replace(known_size, known_position, block);
}

// `second` becomes part of `first`. The index of free blocks is the caller's to change.
void CachingAllocator::join(Block* first, Block* second) {
  first->size += second->size;
  first->next = second->next;
  if (first->next != nullptr) first->next->previous = first;
  store_.give_back(second);
}

void CachingAllocator::record_stream(void* address, int64_t stream) {
  if (address == nullptr) return;
  Guard lock(lock_);
  Block* block = live_.find(reinterpret_cast<uintptr_t>(address));
  if (block == nullptr || block->segment->stream == stream) return;
  streams_->stream(stream);  // refuses a stream that does not exist
  block->more().streams.insert(stream);
  const size_t bytes = block->requested;
  lock.unlock();
  if (tape::is_told(CommandKind::kRecordStream)) [[unlikely]] {
    notify(CommandKind::kRecordStream, address, bytes, stream);
  }
}

void CachingAllocator::notify_free(const void* address) const {
  Guard lock(lock_);
  const Block* block = live_.find(reinterpret_cast<uintptr_t>(address));
  if (block == nullptr) return;
  const size_t bytes = block->requested;
  const int64_t stream = block->segment->stream;
  lock.unlock();
  notify(CommandKind::kFree, address, bytes, stream);
}

// When that throws, what has no event yet is deferred as before.
void CachingAllocator::record_deferred() {
  std::vector<std::pair<int64_t, PendingEvent>> wanted;
  Guard lock(lock_);
  const std::vector<Block*> blocks = std::exchange(deferred_, {});
  if (blocks.empty()) return;
  for (Block* block : blocks) {
    for (const int64_t stream : std::exchange(block->extra->streams, {})) {
      driver::Event event = nullptr;
      if (!spare_events_.empty()) {
        event = spare_events_.back();
        spare_events_.pop_back();
      }
      wanted.push_back({stream, {event, block}});
      ++block->extra->num_events;
    }
  }
  ++num_asking_;
  lock.unlock();
  auto next = wanted.begin();
  std::exception_ptr failure;
  try {
    for (; next != wanted.end(); ++next) {
      auto& [stream, pending] = *next;
      if (pending.event == nullptr) pending.event = untold::create_event(driver_);
      untold::record_event(driver_, pending.event, streams_->stream(stream));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  for (auto recorded = wanted.begin(); recorded != next; ++recorded) {
    pending_[recorded->first].push_back(recorded->second);
  }
  for (; next != wanted.end(); ++next) {
    const auto& [stream, pending] = *next;
    if (pending.event != nullptr) spare_events_.push_back(pending.event);
    pending.block->extra->streams.insert(stream);
    --pending.block->extra->num_events;
  }
  for (Block* block : blocks) {
    if (block->extra->streams.empty()) {
      --block->extra->num_events;
    } else {
      deferred_.push_back(block);
    }
  }
  --num_asking_;
  note_pending();
  if (failure != nullptr) std::rethrow_exception(failure);
}

// When that throws, what was not asked about is pending as before.
void CachingAllocator::process_events() {
  record_deferred();
  Guard lock(lock_);
  std::map<int64_t, std::deque<PendingEvent>> asked = std::exchange(pending_, {});
  ++num_asking_;
  lock.unlock();
  std::vector<PendingEvent> finished;
  std::exception_ptr failure;
  try {
    for (auto& [stream, events] : asked) {
      while (!events.empty() && untold::query_event(driver_, events.front().event)) {
        finished.push_back(events.front());
        events.pop_front();
      }
    }
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  for (auto& [stream, events] : asked) {
    if (events.empty()) continue;
    std::deque<PendingEvent>& later = pending_[stream];  // recorded meanwhile, by other threads
    later.insert(later.begin(), events.begin(), events.end());
  }
  for (const PendingEvent& pending : finished) {
    spare_events_.push_back(pending.event);
    if (--pending.block->extra->num_events == 0) free_block(pending.block, nullptr);
  }
  --num_asking_;
  note_pending();
  return_uncached(lock);
  if (failure != nullptr) std::rethrow_exception(failure);
}

size_t CachingAllocator::block_bytes(const void* address) const {
  Guard lock(lock_);
  const Block* block = live_.find(reinterpret_cast<uintptr_t>(address));
  return block == nullptr ? 0 : block->size;
}

std::pair<uintptr_t, size_t> CachingAllocator::block_around(const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  Guard lock(lock_);
  for (const Segment* segment : segments_) {
    if (wanted < segment->address || wanted - segment->address >= segment->bytes) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (wanted >= block->address && wanted - block->address < block->size)
        return block->allocated ? std::pair(block->address, block->requested)
                                : std::pair(uintptr_t{0}, size_t{0});
    }
  }
  return {0, 0};
}

void CachingAllocator::configure(const AllocatorConfig& config) {
  Guard lock(lock_);
  config_ = config;
  config_.update();
  stats_.max_split_size = config.max_split_bytes == AllocatorConfig::kUnlimited
                              ? -1
                              : static_cast<int64_t>(config.max_split_bytes);
}

}  // namespace loom::runtime
