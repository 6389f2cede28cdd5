#include "runtime/caching_allocator.h"

#include <cstdio>
#include <vector>

namespace loom::runtime {

namespace {

constexpr size_t kMinBlockBytes = 512;             // every size is rounded up to this
constexpr size_t kSmallBytes = size_t{1} << 20;    // largest allocation of the small pool
constexpr size_t kSmallSegment = size_t{2} << 20;  // segments of the small pool
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kMinLargeAlloc = size_t{10} << 20;  // from here on a segment is made to measure
constexpr size_t kRoundLarge = size_t{2} << 20;
constexpr size_t kMaxBytes = size_t{1} << 62;  // beyond this, rounding up could wrap around

size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

size_t segment_bytes(size_t rounded) {
  if (rounded <= kSmallBytes) return kSmallSegment;
  if (rounded < kMinLargeAlloc) return kLargeSegment;
  return round_up(rounded, kRoundLarge);
}

std::string format_bytes(int64_t bytes) {
  const char* unit[] = {"bytes", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t index = 0;
  while (index < 3 && value >= 1024.0) {
    value /= 1024.0;
    ++index;
  }
  char text[64];
  std::snprintf(text, sizeof text, index == 0 ? "%.0f %s" : "%.2f %s", value, unit[index]);
  return text;
}

}  // namespace

bool CachingAllocator::Order::operator()(const Block* left, const Block* right) const {
  if (left->stream != right->stream) return left->stream < right->stream;
  if (left->size != right->size) return left->size < right->size;
  return left->address < right->address;
}

CachingAllocator::CachingAllocator(driver::Driver& driver, int physical_device, int logical_device)
    : driver_(driver), physical_device_(physical_device), logical_device_(logical_device) {}

CachingAllocator::~CachingAllocator() = default;

void CachingAllocator::increase(const Pool& pool, StatArray& stat, size_t amount) {
  each_stat(pool, stat, [&](Stat& one) { one.increase(static_cast<int64_t>(amount)); });
}

void CachingAllocator::decrease(const Pool& pool, StatArray& stat, size_t amount) {
  each_stat(pool, stat, [&](Stat& one) { one.decrease(static_cast<int64_t>(amount)); });
}

void CachingAllocator::update_cached() {
  const int64_t cached = stats_.reserved_bytes[0].current - stats_.active_bytes[0].current;
  stats_.cached_bytes.current = cached;
  if (cached > stats_.cached_bytes.peak) stats_.cached_bytes.peak = cached;
}

CachingAllocator::Block* CachingAllocator::own(std::unique_ptr<Block> block) {
  Block* raw = block.get();
  blocks_.emplace(raw->address, std::move(block));
  return raw;
}

void CachingAllocator::insert_free(Block* block) {
  if (block->node) {
    block->pool->free_blocks.insert(std::move(block->node));
  } else {
    block->pool->free_blocks.insert(block);
  }
}

void CachingAllocator::erase_free(Block* block) { block->node = block->pool->free_blocks.extract(block); }

CachingAllocator::Block* CachingAllocator::find_free(Pool& pool, size_t rounded, int64_t stream) {
  Block key{};
  key.stream = stream;
  key.size = rounded;
  const auto found = pool.free_blocks.lower_bound(&key);
  if (found == pool.free_blocks.end() || (*found)->stream != stream) return nullptr;
  Block* block = *found;
  block->node = pool.free_blocks.extract(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::new_segment(Pool& pool, size_t rounded, int64_t stream) {
  const size_t bytes = segment_bytes(rounded);
  void* memory = nullptr;
  try {
    memory = driver_.allocate(physical_device_, bytes);
  } catch (const OutOfMemory&) {
    return nullptr;
  }
  auto block = std::make_unique<Block>();
  block->address = reinterpret_cast<uintptr_t>(memory);
  block->size = bytes;
  block->stream = stream;
  block->pool = &pool;
  increase(pool, stats_.segment, 1);
  increase(pool, stats_.reserved_bytes, bytes);
  ++stats_.num_device_alloc;
  update_cached();
  return own(std::move(block));
}

void CachingAllocator::split(Block* block, size_t rounded) {
  const size_t remaining = block->size - rounded;
  const bool worth_it = block->pool->is_small ? remaining >= kMinBlockBytes : remaining > kSmallBytes;
  const bool was_split = block->previous != nullptr || block->next != nullptr;
  if (was_split) {  // a free part of a split segment is in use again
    decrease(*block->pool, stats_.inactive_split, 1);
    decrease(*block->pool, stats_.inactive_split_bytes, block->size);
  }
  if (!worth_it) return;
  auto rest = std::make_unique<Block>();
  rest->address = block->address + rounded;
  rest->size = remaining;
  rest->stream = block->stream;
  rest->pool = block->pool;
  rest->previous = block;
  rest->next = block->next;
  Block* raw = own(std::move(rest));
  if (raw->next != nullptr) raw->next->previous = raw;
  block->next = raw;
  block->size = rounded;
  increase(*raw->pool, stats_.inactive_split, 1);
  increase(*raw->pool, stats_.inactive_split_bytes, remaining);
  insert_free(raw);
}

void* CachingAllocator::allocate(size_t bytes, int64_t stream) {
  if (bytes == 0) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > kMaxBytes) throw_out_of_memory(bytes);
  const size_t rounded = round_up(bytes, kMinBlockBytes);
  return take(bytes, rounded, stream, rounded <= kSmallBytes ? small_ : large_);
}

void* CachingAllocator::take(size_t bytes, size_t rounded, int64_t stream, Pool& pool) {
  Block* block = find_free(pool, rounded, stream);
  if (block == nullptr) block = new_segment(pool, rounded, stream);
  if (block == nullptr) {
    release_free_segments();
    ++stats_.num_alloc_retries;
    block = new_segment(pool, rounded, stream);
    if (block == nullptr) throw_out_of_memory(bytes);
  }
  split(block, rounded);
  block->allocated = true;
  block->requested = bytes;
  increase(pool, stats_.allocation, 1);
  increase(pool, stats_.allocated_bytes, block->size);
  increase(pool, stats_.active, 1);
  increase(pool, stats_.active_bytes, block->size);
  increase(pool, stats_.requested_bytes, bytes);
  update_cached();
  return reinterpret_cast<void*>(block->address);
}

void CachingAllocator::merge_into(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->allocated) return;
  erase_free(neighbour);
  decrease(*block->pool, stats_.inactive_split, 1);
  decrease(*block->pool, stats_.inactive_split_bytes, neighbour->size);
  block->size += neighbour->size;
  if (neighbour == block->previous) {
    block->previous = neighbour->previous;
    if (block->previous != nullptr) block->previous->next = block;
    // The merged block starts where its neighbour did: it takes over that place in the table.
    auto entry = blocks_.extract(block->address);
    block->address = neighbour->address;
    blocks_.erase(neighbour->address);
    entry.key() = block->address;
    blocks_.insert(std::move(entry));
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
    blocks_.erase(neighbour->address);
  }
}

void CachingAllocator::deallocate(void* address) {
  if (address == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks_.end() || !found->second->allocated) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    throw InvalidArgument(std::string("the address ") + text + " is not a live allocation of device " +
                          std::to_string(logical_device_) + " (freed twice?)");
  }
  Block* block = found->second.get();
  Pool& pool = *block->pool;
  block->allocated = false;
  decrease(pool, stats_.allocation, 1);
  decrease(pool, stats_.allocated_bytes, block->size);
  decrease(pool, stats_.active, 1);
  decrease(pool, stats_.active_bytes, block->size);
  decrease(pool, stats_.requested_bytes, block->requested);
  merge_into(block, block->previous);
  merge_into(block, block->next);
  if (block->previous != nullptr || block->next != nullptr) {
    increase(pool, stats_.inactive_split, 1);
    increase(pool, stats_.inactive_split_bytes, block->size);
  }
  insert_free(block);
  update_cached();
}

void CachingAllocator::release_free_segments() {
  for (Pool* pool : {&small_, &large_}) {
    std::vector<Block*> whole;
    for (Block* block : pool->free_blocks) {
      if (block->previous == nullptr && block->next == nullptr) whole.push_back(block);
    }
    for (Block* block : whole) {
      driver_.deallocate(physical_device_, reinterpret_cast<void*>(block->address));
      decrease(*pool, stats_.segment, 1);
      decrease(*pool, stats_.reserved_bytes, block->size);
      ++stats_.num_device_free;
      pool->free_blocks.erase(block);
      blocks_.erase(block->address);
    }
  }
  update_cached();
}

void CachingAllocator::empty_cache() {
  std::lock_guard<std::mutex> lock(mutex_);
  release_free_segments();
}

void CachingAllocator::throw_out_of_memory(size_t bytes) {
  ++stats_.num_ooms;
  const driver::MemoryInfo memory = memory_info();
  const int64_t allocated = stats_.allocated_bytes[0].current;
  const int64_t reserved = stats_.reserved_bytes[0].current;
  const int64_t asked = bytes > static_cast<size_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(bytes);
  throw OutOfMemory("out of memory. Tried to allocate " + format_bytes(asked) + ". Device " +
                        std::to_string(logical_device_) + " has a total capacity of " +
                        format_bytes(memory.total_bytes) + " of which " + format_bytes(memory.free_bytes) +
                        " is free. Of the memory in use, " + format_bytes(allocated) +
                        " is allocated by PyTorch, and " + format_bytes(reserved - allocated) +
                        " is reserved by PyTorch but unallocated; in segments that are split, " +
                        format_bytes(stats_.inactive_split_bytes[0].current) + " cannot be given back.",
                    logical_device_, asked, memory.free_bytes, memory.total_bytes);
}

AllocatorStats CachingAllocator::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

namespace {

template <typename F>
void each_array(AllocatorStats& stats, F&& change) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& stat : *array) change(stat);
  }
  change(stats.cached_bytes);
}

}  // namespace

void CachingAllocator::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  each_array(stats_, [](Stat& stat) { stat.peak = stat.current; });
}

void CachingAllocator::reset_accumulated_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  each_array(stats_, [](Stat& stat) { stat.allocated = stat.freed = 0; });
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_device_alloc = stats_.num_device_free = 0;
}

}  // namespace loom::runtime
