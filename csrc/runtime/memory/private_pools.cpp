// The allocator's private pools: who may allocate from them, and how long they live.
#include <algorithm>
#include <atomic>

#include "runtime/memory/caching_allocator.h"

namespace loom::runtime {

namespace {

std::string name_of(PoolId id) {
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

}  // namespace

PoolId new_pool_id(bool user_created) {
  static std::atomic<uint64_t> next_of_user{1}, next_of_graph{1};
  return user_created ? PoolId{0, next_of_user++} : PoolId{next_of_graph++, 0};
}

void CachingAllocator::use_pool(PoolId id, bool use_on_oom, bool no_split, SourceRef source) {
  if (id == PoolId{}) throw InvalidArgument("(0, 0) is the id of no private pool");
  Guard lock(lock_);
  std::unique_ptr<PrivatePool>& pool = private_pools_[id];
  if (pool == nullptr) {
    pool = std::make_unique<PrivatePool>(id);
    pool->source = source != nullptr ? std::move(source) : memory_mode::source();
  } else {
    ++pool->use_count;
  }
  pool->use_on_oom |= use_on_oom;
  pool->no_split |= no_split;
}

void CachingAllocator::begin_allocate_to_pool(PoolId id, Filter filter, bool capturing, SourceRef source) {
  use_pool(id, false, false, std::move(source));
  {
    Guard lock(lock_);
    if (std::none_of(captures_.begin(), captures_.end(),
                     [&](const Capture& each) { return each.id == id; })) {
      captures_.push_back({id, std::move(filter), capturing});
      num_capturing_ += capturing ? 1 : 0;
      return;
    }
  }
  release_pool(id);
  throw Error("beginAllocateToPool: already recording to mempool_id " + name_of(id) +
              ": allocations of device " + std::to_string(logical_device_) + " go to it already");
}

void CachingAllocator::end_allocate_to_pool(PoolId id) {
  Guard lock(lock_);
  const auto found =
      std::find_if(captures_.begin(), captures_.end(), [&](const Capture& each) { return each.id == id; });
  if (found == captures_.end()) {
    throw Error("endAllocatePool: not currently recording to mempool_id " + name_of(id) +
                ": no allocations of device " + std::to_string(logical_device_) + " go to it");
  }
  num_capturing_ -= found->capturing ? 1 : 0;
  captures_.erase(found);
}

void CachingAllocator::release_pool(PoolId id) {
  Guard lock(lock_);
  const auto found = private_pools_.find(id);
  if (found == private_pools_.end() || found->second->use_count == 0) {
    throw InvalidArgument("nobody uses the private pool " + name_of(id) + " on device " +
                          std::to_string(logical_device_));
  }
  PrivatePool& pool = *found->second;
  if (--pool.use_count == 0 && pool.num_segments == 0) private_pools_.erase(found);
}

void CachingAllocator::erase_unused_pools() {
  for (auto pool = private_pools_.begin(); pool != private_pools_.end();) {
    const bool gone = pool->second->use_count == 0 && pool->second->num_segments == 0;
    pool = gone ? private_pools_.erase(pool) : std::next(pool);
  }
}

int CachingAllocator::pool_use_count(PoolId id) const {
  Guard lock(lock_);
  const auto found = private_pools_.find(id);
  return found == private_pools_.end() ? 0 : found->second->use_count;
}

Block* CachingAllocator::borrow_from_private_pools(bool is_small, size_t rounded, int64_t stream) {
  for (auto& [id, pool] : private_pools_) {
    if (!pool->use_on_oom) continue;
    if (Block* block = find_free(is_small ? pool->small : pool->large, rounded, stream)) return block;
  }
  return nullptr;
}

size_t CachingAllocator::private_bytes() const {
  size_t bytes = 0;
  for (const Segment* segment : segments_) {
    if (segment->pool->owner == nullptr) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->allocated) bytes += block->size;
    }
  }
  return bytes;
}

}  // namespace loom::runtime
