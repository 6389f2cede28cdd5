// The state of a private pool, kept and put back: which parts of its segments are in use.
#include <algorithm>

#include "runtime/memory/caching_allocator.h"

namespace loom::runtime {

namespace {

// Whether the memory of all parts is there: an expandable segment may have given some back.
bool has_parts(const Segment& segment, const PoolCheckpoint::SegmentState& state) {
  const Block* block = segment.first;
  for (const PoolCheckpoint::Part& part : state.parts) {
    for (size_t covered = 0; covered < part.bytes;) {
      const uintptr_t address = part.address + covered;
      while (block != nullptr && block->address + block->size <= address) block = block->next;
      if (block == nullptr || !block->mapped || block->leaving) return false;
      covered = std::min(part.bytes, block->address + block->size - part.address);
    }
  }
  return true;
}

}  // namespace

PrivatePool& CachingAllocator::existing_pool(PoolId id) const {
  const auto found = private_pools_.find(id);
  if (found != private_pools_.end()) return *found->second;
  throw InvalidArgument("device " + std::to_string(logical_device_) + " has no private pool (" +
                        std::to_string(id.first) + ", " + std::to_string(id.second) + ")");
}

std::vector<Segment*> CachingAllocator::segments_of(const PrivatePool& pool) const {
  std::vector<Segment*> found;
  for (Segment* segment : segments_) {
    if (segment->pool->owner == &pool) found.push_back(segment);
  }
  return found;
}

PoolCheckpoint CachingAllocator::checkpoint(PoolId id) {
  settle_frees();
  Guard lock(lock_);
  PoolCheckpoint kept{id, {}};
  for (const Segment* segment : segments_of(existing_pool(id))) {
    PoolCheckpoint::SegmentState& state = kept.segments.emplace_back();
    state.address = segment->address;
    state.bytes = segment->bytes;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      refuse_unsettled(*block);
      if (block->allocated) state.parts.push_back({block->address, block->size, block->requested});
    }
  }
  return kept;
}

void CachingAllocator::refuse_unsettled(const Block& block) const {
  if (block.allocated || block.is_free() || !block.mapped) return;
  throw Error("the private pool has memory that other streams still use: synchronize device " +
              std::to_string(logical_device_) + " before its state is kept or put back");
}

// Blocks that were freed and wait for other streams are asked about.
void CachingAllocator::settle_frees() {
  if (has_pending_ && !may_not_ask_events()) process_events();
}

PoolRestored CachingAllocator::restore(const PoolCheckpoint& kept) {
  settle_frees();
  PoolRestored changed;
  {
    Guard lock(lock_);
    const std::vector<Segment*> segments = segments_of(existing_pool(kept.id));
    for (const Segment* segment : segments) {
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        refuse_unsettled(*block);
        const bool is_recorded =
            block->allocated && block->extra != nullptr && !block->extra->streams.empty();
        if (is_recorded) {
          throw Error(
              "the private pool has a tensor that record_stream() was called for: its memory cannot be "
              "given to the state that is put back");
        }
      }
    }
    // All of them are found before anything changes.
    std::vector<Segment*> targets;
    for (const PoolCheckpoint::SegmentState& state : kept.segments) {
      const auto found = std::find_if(segments.begin(), segments.end(), [&](const Segment* segment) {
        return segment->address == state.address && segment->bytes == state.bytes &&
               has_parts(*segment, state);
      });
      if (found == segments.end()) {
        throw InvalidArgument(
            "the private pool has other segments than when its state was kept: it has given memory back "
            "(hold it, by a graph or a MemPool, for as long as its state is used)");
      }
      targets.push_back(*found);
    }
    for (Segment* segment : segments) free_parts(*segment, changed);
    for (size_t i = 0; i < targets.size(); ++i) cut_as_kept(*targets[i], kept.segments[i], changed);
    note_cached();
  }
  return changed;
}

void CachingAllocator::free_parts(Segment& segment, PoolRestored& changed) {
  std::vector<Block*> in_use;
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    if (block->allocated) in_use.push_back(block);
  }
  const Pool& pool = *segment.pool;
  for (Block* block : in_use) {  // freeing one joins it with free neighbours only
    changed.freed.push_back(block->address);
    live_.erase(block->address);
    decrease(pool, stats_.allocation, 1);
    decrease(pool, stats_.allocated_bytes, block->size);
    if (block->size >= config_.max_split_bytes) stats_.oversize_allocations.decrease(1);
    if (history_.enabled()) trace(TraceAction::kFreeRequested, *block, nullptr);
    block->allocated = false;
    free_block(block, nullptr);
  }
}

// All of the segment that is mapped is free.
void CachingAllocator::cut_as_kept(Segment& segment, const PoolCheckpoint::SegmentState& state,
                                   PoolRestored& changed) {
  for (const PoolCheckpoint::Part& part : state.parts) {
    changed.allocated.push_back(part.address);
    take_part(segment, part);
  }
  const Pool& pool = *segment.pool;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    if (!block->is_free() || !block->is_split() || !counts_as_split(*block)) continue;
    increase(pool, stats_.inactive_split, 1);
    increase(pool, stats_.inactive_split_bytes, block->size);
  }
}

void CachingAllocator::take_part(Segment& segment, const PoolCheckpoint::Part& part) {
  Block* block = segment.first;
  while (block->address + block->size <= part.address) block = block->next;
  erase_free(block);
  if (block->address != part.address) {
    Block* const rest = split_off(block, part.address - block->address);
    insert_free(block);
    block = rest;
  }
  if (block->size != part.bytes) insert_free(split_off(block, part.bytes));
  count_allocated(*block, part.requested);
}

std::map<uintptr_t, size_t> CachingAllocator::blocks_in_use(PoolId id) const {
  Guard lock(lock_);
  std::map<uintptr_t, size_t> blocks;
  for (const Segment* segment : segments_of(existing_pool(id))) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->allocated) blocks.emplace(block->address, block->size);
    }
  }
  return blocks;
}

}  // namespace loom::runtime
