// The caching allocator of one device: CUDA's rules (design.md §4) over the driver's allocate and deallocate.
// No PyTorch header: it is tested without PyTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "driver/driver.h"

namespace loom::runtime {

// One counted quantity. `allocated` and `freed` only grow, until they are reset.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void increase(int64_t amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

// Index into a StatArray, in PyTorch's order.
enum class StatType { kAggregate = 0, kSmallPool = 1, kLargePool = 2 };
using StatArray = std::array<Stat, 3>;

struct AllocatorStats {
  StatArray allocation, segment, active, inactive_split;                                           // counts
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;  // bytes
  Stat cached_bytes;  // reserved − active
  int64_t num_alloc_retries = 0, num_ooms = 0, num_device_alloc = 0, num_device_free = 0;
};

class CachingAllocator {
 public:
  CachingAllocator(driver::Driver& driver, int physical_device, int logical_device);
  ~CachingAllocator();

  // Memory for use on `stream` (an opaque id; blocks are reused within one stream only). Null for 0 bytes.
  // Throws OutOfMemory with all numbers after the cache was flushed and tried again; live blocks stay as they
  // were.
  void* allocate(size_t bytes, int64_t stream);
  // Returns a block to the cache. Throws InvalidArgument when `address` is no live block's start; null is a
  // no-op.
  void deallocate(void* address);
  // Gives back to the driver every cached segment that is not split.
  void empty_cache();

  AllocatorStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();
  driver::MemoryInfo memory_info() const { return driver_.memory_info(physical_device_); }

 private:
  struct Block;
  struct Order {
    bool operator()(const Block* left, const Block* right) const;
  };
  using BlockSet = std::set<Block*, Order>;
  struct Pool {
    bool is_small;
    BlockSet free_blocks;
  };
  struct Block {
    uintptr_t address;
    size_t size;
    size_t requested;
    int64_t stream;
    Pool* pool;
    bool allocated;
    Block *previous, *next;    // neighbours in the same segment
    BlockSet::node_type node;  // kept while the block is in use, so that reuse takes no memory from the host
  };

  void* take(size_t bytes, size_t rounded, int64_t stream, Pool& pool);
  Block* find_free(Pool& pool, size_t rounded, int64_t stream);
  Block* new_segment(Pool& pool, size_t rounded, int64_t stream);
  void split(Block* block, size_t rounded);
  void insert_free(Block* block);
  void erase_free(Block* block);
  void merge_into(Block* block, Block* neighbour);
  void release_free_segments();
  Block* own(std::unique_ptr<Block> block);
  [[noreturn]] void throw_out_of_memory(size_t bytes);

  template <typename F>
  void each_stat(const Pool& pool, StatArray& stat, F&& change) {
    change(stat[static_cast<size_t>(StatType::kAggregate)]);
    change(stat[static_cast<size_t>(pool.is_small ? StatType::kSmallPool : StatType::kLargePool)]);
  }
  void increase(const Pool& pool, StatArray& stat, size_t amount);
  void decrease(const Pool& pool, StatArray& stat, size_t amount);
  void update_cached();

  driver::Driver& driver_;
  const int physical_device_, logical_device_;
  mutable std::mutex mutex_;
  Pool small_{true, {}}, large_{false, {}};
  std::unordered_map<uintptr_t, std::unique_ptr<Block>> blocks_;  // every block, free or not, by its start
  AllocatorStats stats_;
};

}  // namespace loom::runtime
