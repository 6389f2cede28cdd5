// Expandable segments: they grow at their end while the driver's memory goes on there, and shrink again.
#include <algorithm>

#include "runtime/memory/caching_allocator.h"

namespace loom::runtime {

// A driver has no way to put memory at a given address, so an expandable segment grows for as long as the
// driver's next allocation lies right behind it; where it does not, a further segment begins.
Block* CachingAllocator::extend_segment(Pool& pool, size_t rounded, int64_t stream, const Context& context) {
  const size_t granule = pool.is_small ? kSmallSegment : config_.large_segment_bytes;
  Segment* segment = nullptr;
  for (Segment* each : segments_) {
    if (each->expandable && !each->leaving && each->pool == &pool && each->stream == stream &&
        (segment == nullptr || each->position < segment->position)) {
      segment = each;  // the newest
    }
  }
  Block* tail = nullptr;
  if (segment != nullptr) {
    for (tail = segment->first; tail->next != nullptr;) tail = tail->next;
  }
  const size_t available = tail != nullptr && tail->is_free() ? tail->size : 0;
  if (available >= rounded) {
    // Passed over for the split limit, which protects blocks that cannot be cut to size, or freed since.
    erase_free(tail);
    return tail;
  }
  const size_t missing = round_up(rounded - available, granule);
  void* memory = take_from_driver(missing);
  if (memory == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (tail == nullptr || address != tail->address + tail->size) {
    const size_t whole = round_up(rounded, granule);
    if (whole != missing) {
      driver_.deallocate(memory);
      memory = take_from_driver(whole);
      if (memory == nullptr) return nullptr;
    }
    return add_segment(pool, stream, true, memory, whole, context);
  }
  segment->pieces.push_back({address, missing});
  segment->bytes += missing;
  Block* added = store_.take();
  added->address = address;
  added->position = tail->position + tail->size;
  added->size = missing;
  added->segment = segment;
  added->previous = tail;
  tail->next = added;
  increase(pool, stats_.reserved_bytes, missing);
  has_reserved_.store(true, std::memory_order_relaxed);
  ++stats_.num_device_alloc;
  history_.record(TraceAction::kSegmentMap, address, missing, stream,
                  pool.owner == nullptr ? PoolId{} : pool.owner->id, context);
  if (available == 0) return added;
  erase_free(tail);
  join(tail, added);
  return tail;
}

// The free end of an expandable segment becomes a segment of its own, out of use.
void CachingAllocator::collect_tails(Pool& pool, std::vector<Segment*>& segments) {
  for (Block* block : pool.all_free_blocks()) {
    Segment* segment = block->segment;
    if (!segment->expandable || block->next != nullptr || block->previous == nullptr) continue;
    const auto cut =
        std::find_if(segment->pieces.begin(), segment->pieces.end(),
                     [&](const Segment::Piece& piece) { return piece.address >= block->address; });
    if (cut == segment->pieces.end()) continue;
    const size_t kept = cut->address - block->address;
    erase_free(block);
    Block* rest = block;
    if (kept != 0) {
      rest = store_.take();
      rest->address = cut->address;
      rest->position = block->position + kept;
      rest->size = block->size - kept;
      block->size = kept;
      insert_free(block);
    } else {
      block->previous->next = nullptr;
      block->previous = nullptr;
    }
    auto* tail =
        new Segment{&pool, segment->stream,  rest->position, true,   rest->size, {cut, segment->pieces.end()},
                    rest,  segments_.size(), nullptr,        nullptr};
    tail->leaving = true;
    rest->segment = tail;
    segments_.push_back(tail);
    segment->pieces.erase(cut, segment->pieces.end());
    segment->bytes -= tail->bytes;
    increase(pool, stats_.segment, 1);
    if (pool.owner != nullptr) ++pool.owner->num_segments;
    segments.push_back(tail);
  }
}

}  // namespace loom::runtime
