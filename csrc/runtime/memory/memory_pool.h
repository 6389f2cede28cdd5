// Blocks, segments and the two indices that find them: free blocks by size, blocks in use by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "runtime/memory/memory_history.h"
#include "runtime/memory/memory_source.h"
#include "runtime/memory/segment_placement.h"

namespace loom::runtime {

struct Pool;
struct Segment;

// What few blocks have.
struct BlockExtra {
  std::set<int64_t> streams;  // further streams that use the block (record_stream)
  int num_events = 0;         // freed, and this many of those streams are not past that point yet
  Context context;            // where it was allocated
};

// A part of a segment, in use or free. The parts of a segment are a list, in the order of their addresses.
struct Block {
  uintptr_t address = 0;
  size_t size = 0;
  size_t requested = 0;
  Position position = 0;
  Segment* segment = nullptr;
  Block *previous = nullptr, *next = nullptr;
  bool allocated = false;  // the program holds it
  bool mapped = true;      // false: addresses of an expandable segment without memory
  bool leaving = false;    // out of use: a thread gives it back without holding the lock
  uint64_t freed_at = 0;   // the pool's count of searches when it became free
  std::unique_ptr<BlockExtra> extra;

  bool is_free() const {
    return !allocated && mapped && !leaving && (extra == nullptr || extra->num_events == 0);
  }
  bool is_split() const { return previous != nullptr || next != nullptr; }
  BlockExtra& more() {
    if (extra == nullptr) extra = std::make_unique<BlockExtra>();
    return *extra;
  }
};

// Memory taken from the driver: one allocation, or a room where pages come and go when it is expandable.
struct Segment {
  Pool* pool;
  int64_t stream;
  Position position;
  size_t page_bytes;  // of an expandable segment; 0: it is none
  uintptr_t address;
  size_t bytes;  // of an expandable segment those of its room
  Block* first;
  size_t index;  // in the allocator's list
  Context context;
  SourceRef source;  // its source; null: the driver

  bool is_expandable() const { return page_bytes != 0; }
};

// The free blocks of one stream in one pool, ordered by size, then position: a sorted array cut into short
// runs, so that the common case touches two cache lines and a large one stays logarithmic.
class FreeBlocks {
 public:
  // The first block of at least `bytes`, or null.
  Block* find(size_t bytes) const;
  // The next free block after `block`, or null.
  Block* after(const Block& block) const;
  void insert(Block* block);
  void erase(const Block* block);
  // `block` enters, and the block leaves that had this size and position: most often one is a part of the
  // other, and no entry moves.
  void replace(size_t size, Position position, Block* block);
  // In order.
  std::vector<Block*> all() const;

 private:
  struct Entry {
    size_t size;
    Position position;
    Block* block;
    bool before(size_t other_size, Position other_position) const {
      return size != other_size ? size < other_size : position < other_position;
    }
  };
  struct Place {
    size_t run, index;
  };
  static constexpr size_t kMaxRun = 128;

  // Of the first entry that is not before (size, position); the last run's end if there is none.
  Place lower_bound(size_t size, Position position) const;
  void erase_at(Place place);

  std::vector<std::vector<Entry>> runs_;  // a run is empty only if it is the sole run
};

struct PrivatePool;

// The whole pages that lie in a block of an expandable segment: where they begin, and their bytes.
std::pair<uintptr_t, size_t> whole_pages(const Block& block);

struct Pool {
  Pool(bool is_small, PrivatePool* owner, bool is_cached = true)
      : is_small(is_small), is_cached(is_cached), owner(owner) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const bool is_small;
  const bool is_cached;      // false: a segment goes back with its only block
  PrivatePool* const owner;  // null: the allocator's own
  uint64_t num_searches = 0;

  FreeBlocks& free_blocks(int64_t stream) {
    if (last_ != nullptr && stream == last_stream_) [[likely]] {
      return *last_;
    }
    last_stream_ = stream;
    last_ = &by_stream_[stream];
    return *last_;
  }
  // By stream, then in order.
  std::vector<Block*> all_free_blocks() const;

  // Of its expandable segments, by stream and position.
  std::map<std::pair<int64_t, Position>, Block*> unmapped;

 private:
  std::unordered_map<int64_t, FreeBlocks> by_stream_;  // its values stay where they are
  FreeBlocks* last_ = nullptr;
  int64_t last_stream_ = 0;
};

// Memory that serves only allocations made to it.
struct PrivatePool {
  explicit PrivatePool(PoolId id) : id(id) {}
  const PoolId id;
  int use_count = 1;
  size_t num_segments = 0;
  bool no_split = false;    // a block is a whole segment
  bool use_on_oom = false;  // its free blocks serve others before an allocation fails
  SourceRef source;         // of its segments; null: the driver
  Pool small{true, this}, large{false, this};
};

// Blocks in use by address: open addressing with linear probing.
class LiveBlocks {
 public:
  LiveBlocks() : slots_(size_t{1} << 8), shift_(64 - 8) {}

  void insert(Block* block) {
    if (2 * (count_ + 1) > slots_.size()) [[unlikely]] {
      grow();
    }
    place({block->address, block});
    ++count_;
  }
  // The block that starts at `address`, or null.
  Block* find(uintptr_t address) const {
    for (size_t slot = home(address);; slot = next(slot)) {
      if (slots_[slot].address == address) return slots_[slot].block;
      if (slots_[slot].block == nullptr) return nullptr;
    }
  }
  void erase(uintptr_t address);
  size_t size() const { return count_; }

 private:
  struct Slot {
    uintptr_t address = 0;
    Block* block = nullptr;
  };
  // Fibonacci hashing of the address in units of the smallest block.
  size_t home(uintptr_t address) const { return (address >> 9) * 0x9E3779B97F4A7C15ULL >> shift_; }
  size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void place(Slot entry) {
    size_t slot = home(entry.address);
    while (slots_[slot].block != nullptr) slot = next(slot);
    slots_[slot] = entry;
  }
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_;
  size_t count_ = 0;
};

// Blocks come and go with every split and merge: used ones are kept.
class BlockStore {
 public:
  Block* take();
  void give_back(Block* block);

 private:
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* spare_ = nullptr;  // linked by `next`
};

}  // namespace loom::runtime
