// Segments that come from functions of the program, and those that are not cached.
#include <exception>
#include <utility>

#include "runtime/memory/caching_allocator.h"

namespace loom::runtime {

// A free block that is all of a new segment; null when the source has no more.
Block* CachingAllocator::sourced_segment(Guard& lock, Pool& pool, const SourceRef& source, size_t bytes,
                                         int64_t stream, const Context& context) {
  const MemorySource::Place place{logical_device_, driver_index_, streams_->stream(stream)};
  // The pool stays while the lock is let go.
  if (pool.owner != nullptr) ++pool.owner->use_count;
  lock.unlock();
  void* memory = nullptr;
  std::exception_ptr failure;
  try {
    memory = source->allocate(driver_, bytes, place);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (pool.owner != nullptr) --pool.owner->use_count;
  if (failure != nullptr) std::rethrow_exception(failure);
  if (memory == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  for (const Segment* segment : segments_) {
    if (segment->first->leaving || address >= segment->address + segment->bytes ||
        segment->address >= address + bytes) {
      continue;
    }
    throw InvalidArgument("the pluggable allocator returned memory of device " +
                          std::to_string(logical_device_) +
                          " that overlaps memory which is in use: it gave an address twice, or its blocks "
                          "are smaller than it was asked for");
  }
  Block* const block = add_segment(pool, stream, memory, bytes, context);
  block->segment->source = source;
  return block;
}

// Not under the lock: the function may wait for Python's.
void CachingAllocator::return_to_source(const Segment& segment) noexcept {
  if (segment.source == nullptr) return;
  const MemorySource::Place place{logical_device_, driver_index_, streams_->stream(segment.stream)};
  segment.source->deallocate(driver_, reinterpret_cast<void*>(segment.address), segment.bytes, place);
}

// Gives back what is not cached. All work that uses it has finished.
void CachingAllocator::return_uncached(Guard& lock) {
  if (uncached_.empty()) return;
  const std::vector<Segment*> segments = std::exchange(uncached_, {});
  lock.unlock();
  const FreeMutex::Shared may_free;
  for (const Segment* segment : segments) return_to_source(*segment);
  lock.lock();
  for (Segment* segment : segments) destroy(segment, nullptr);
}

}  // namespace loom::runtime
