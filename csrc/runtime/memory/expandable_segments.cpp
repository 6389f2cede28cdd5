// Expandable segments: rooms of the driver's in which pages come and go, by CUDA's rules.
#include <algorithm>

#include "runtime/ipc/activity_board.h"
#include "runtime/memory/caching_allocator.h"

namespace loom::runtime {

std::pair<uintptr_t, size_t> whole_pages(const Block& block) {
  const Segment& segment = *block.segment;
  const size_t offset = block.address - segment.address;
  const size_t begin = round_up(offset, segment.page_bytes);
  const size_t end = (offset + block.size) / segment.page_bytes * segment.page_bytes;
  return {segment.address + begin, begin < end ? end - begin : 0};
}

// Maps as many pages as a request needs, next to free memory where that can be used as well. What is mapped
// when the device runs out stays, free.
Block* CachingAllocator::extend_segment(Pool& pool, size_t rounded, int64_t stream, const Context& context) {
  Block* block = find_growable(pool, rounded, stream);
  if (block == nullptr) return begin_expandable(pool, rounded, stream, context);
  if (!block->mapped) block = map_block(block, std::min(block->size, rounded), context);
  while (block != nullptr && block->size < rounded) {
    Block* const next = block->next;
    block = map_block(next, std::min(rounded - block->size, next->size), context);
  }
  return block;
}

// The lowest place in the room of a segment where so many bytes are free or unmapped: an unmapped block, or
// the free block before it. Null: none has that.
Block* CachingAllocator::find_growable(Pool& pool, size_t rounded, int64_t stream) const {
  const auto is_usable = [](const Block* block) {
    return block != nullptr && (block->is_free() || !block->mapped);
  };
  for (auto each = pool.unmapped.lower_bound({stream, 0});
       each != pool.unmapped.end() && each->first.first == stream; ++each) {
    Block* first = each->second;
    if (is_usable(first->previous)) first = first->previous;
    size_t bytes = 0;
    for (const Block* block = first; bytes < rounded && is_usable(block); block = block->next) {
      bytes += block->size;
    }
    if (bytes >= rounded) return first;
  }
  return nullptr;
}

// A room is larger than the device, since holes in it cost addresses and no memory.
Block* CachingAllocator::begin_expandable(Pool& pool, size_t rounded, int64_t stream,
                                          const Context& context) {
  const size_t page_bytes = pool.is_small ? kSmallSegment : config_.large_segment_bytes;
  const auto total = static_cast<size_t>(memory_info().total_bytes);
  const size_t bytes = round_up(rounded, page_bytes);
  const size_t room_bytes = std::max(bytes, round_up(total + total / 8, page_bytes));
  void* const memory = take_from_driver(bytes, {.room_bytes = room_bytes});
  if (memory == nullptr) return nullptr;
  Block* const block = make_segment(pool, stream, page_bytes, memory, room_bytes, context)->first;
  if (bytes < room_bytes) {
    Block* const rest = split_off(block, bytes);
    rest->mapped = false;
    settle(rest);
  }
  note_mapped(*block, bytes, context);
  insert_free(block);
  return block;
}

// Best fit takes a block for as large as it can become, so that small requests leave room to large ones.
// Once expandable segments are switched off, their blocks are not reused.
Block* CachingAllocator::choose_expandable(const FreeBlocks& free_blocks, Block* block) const {
  if (!config_.expandable_segments) {
    while (block != nullptr && block->segment->is_expandable()) block = free_blocks.after(*block);
    return block;
  }
  const auto reach = [](const Block& each) {
    return each.size + (each.next != nullptr && !each.next->mapped ? each.next->size : 0);
  };
  while (block->segment->is_expandable()) {
    Block* const next = free_blocks.after(*block);
    if (next == nullptr || reach(*next) >= reach(*block)) break;
    block = next;
  }
  return block;
}

// Gives the start of an unmapped block memory, and returns the free block that it is part of then. Null: the
// device has no more.
Block* CachingAllocator::map_block(Block* block, size_t bytes, const Context& context) {
  const Segment& segment = *block->segment;
  const size_t mapped = round_up(bytes, segment.page_bytes);
  if (take_from_driver(mapped, {.at = reinterpret_cast<void*>(block->address)}) == nullptr) return nullptr;
  segment.pool->unmapped.erase({segment.stream, block->position});
  block->mapped = true;
  if (mapped < block->size) {
    Block* const rest = split_off(block, mapped);
    rest->mapped = false;
    settle(rest);
  }
  note_mapped(*block, mapped, context);
  return settle(block);
}

void CachingAllocator::note_mapped(const Block& block, size_t bytes, const Context& context) {
  const Pool& pool = *block.segment->pool;
  increase(pool, stats_.reserved_bytes, bytes);
  ++stats_.num_device_alloc;
  history_.record(TraceAction::kSegmentMap, block.address, bytes, block.segment->stream,
                  pool.owner == nullptr ? PoolId{} : pool.owner->id, context);
}

// Gives the whole pages in a block back, which is out of use; what lies before and behind them is free.
void CachingAllocator::unmap_block(Block* block, const Context& context) {
  Segment* const segment = block->segment;
  const Pool& pool = *segment->pool;
  const auto [address, bytes] = whole_pages(*block);
  block->leaving = false;
  Block *before = nullptr, *behind = nullptr;
  if (address != block->address) {
    before = block;
    block = split_off(block, address - block->address);
  }
  if (bytes != block->size) behind = split_off(block, bytes);
  block->mapped = false;
  if (before != nullptr) settle(before);
  if (behind != nullptr) settle(behind);
  driver_.deallocate(reinterpret_cast<void*>(address), bytes);
  activity_board::note_memory(driver_, logical_device_, driver_index_);
  decrease(pool, stats_.reserved_bytes, bytes);
  ++stats_.num_device_free;
  note_cached();
  history_.record(TraceAction::kSegmentUnmap, address, bytes, segment->stream,
                  pool.owner == nullptr ? PoolId{} : pool.owner->id,
                  context != nullptr ? context : segment->context);
  block = settle(block);
  if (block->is_split()) return;
  segment->pool->unmapped.erase({segment->stream, block->position});
  forget(segment);
}

// Joins a block, free or unmapped and in no index, with such neighbours, and puts it into its index.
Block* CachingAllocator::settle(Block* block) {
  const auto joins = [&](const Block* other) {
    return other != nullptr && (block->mapped ? other->is_free() : !other->mapped);
  };
  const auto take_from_index = [&](Block* other) {
    if (other->mapped) return erase_free(other);
    other->segment->pool->unmapped.erase({other->segment->stream, other->position});
  };
  if (Block* const previous = block->previous; joins(previous)) {
    take_from_index(previous);
    join(previous, block);
    block = previous;
  }
  if (Block* const next = block->next; joins(next)) {
    take_from_index(next);
    join(block, next);
  }
  if (block->mapped) {
    insert_free(block);
  } else {
    block->segment->pool->unmapped.emplace(std::pair{block->segment->stream, block->position}, block);
  }
  return block;
}

}  // namespace loom::runtime
