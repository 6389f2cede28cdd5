#include "runtime/memory/memory_pool.h"

#include <algorithm>

namespace loom::runtime {

FreeBlocks::Place FreeBlocks::lower_bound(size_t size, Position position) const {
  size_t run = 0;
  if (runs_.size() > 1) {
    const auto found = std::partition_point(
        runs_.begin(), runs_.end() - 1,
        [&](const std::vector<Entry>& each) { return each.back().before(size, position); });
    run = static_cast<size_t>(found - runs_.begin());
  }
  const std::vector<Entry>& entries = runs_[run];
  const auto found = std::partition_point(entries.begin(), entries.end(),
                                          [&](const Entry& entry) { return entry.before(size, position); });
  return {run, static_cast<size_t>(found - entries.begin())};
}

Block* FreeBlocks::find(size_t bytes) const {
  if (runs_.empty()) return nullptr;
  const Place place = lower_bound(bytes, 0);
  return place.index == runs_[place.run].size() ? nullptr : runs_[place.run][place.index].block;
}

Block* FreeBlocks::after(const Block& block) const {
  auto [run, index] = lower_bound(block.size, block.position);
  if (++index == runs_[run].size()) {
    index = 0;
    ++run;
  }
  return run == runs_.size() ? nullptr : runs_[run][index].block;
}

void FreeBlocks::insert(Block* block) {
  const Entry entry{block->size, block->position, block};
  if (runs_.empty()) {
    runs_.emplace_back().reserve(kMaxRun);
    runs_.back().push_back(entry);
    return;
  }
  auto [run, index] = lower_bound(block->size, block->position);
  if (runs_[run].size() == kMaxRun) {
    std::vector<Entry> upper;
    upper.reserve(kMaxRun);
    upper.assign(runs_[run].begin() + kMaxRun / 2, runs_[run].end());
    runs_[run].resize(kMaxRun / 2);
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(run) + 1, std::move(upper));
    if (index > kMaxRun / 2) {
      ++run;
      index -= kMaxRun / 2;
    }
  }
  runs_[run].insert(runs_[run].begin() + static_cast<std::ptrdiff_t>(index), entry);
}

void FreeBlocks::erase(const Block* block) { erase_at(lower_bound(block->size, block->position)); }

void FreeBlocks::replace(size_t size, Position position, Block* block) {
  const Place place = lower_bound(size, position);
  const auto [run, index] = place;
  std::vector<Entry>& entries = runs_[run];
  const Entry entry{block->size, block->position, block};
  const bool follows = index != 0 ? entries[index - 1].before(entry.size, entry.position) : run == 0;
  const bool precedes = index + 1 != entries.size()
                            ? entry.before(entries[index + 1].size, entries[index + 1].position)
                            : run + 1 == runs_.size();
  if (follows && precedes) [[likely]] {
    entries[index] = entry;
    return;
  }
  erase_at(place);
  insert(block);
}

void FreeBlocks::erase_at(Place place) {
  const auto [run, index] = place;
  runs_[run].erase(runs_[run].begin() + static_cast<std::ptrdiff_t>(index));
  // The last run is kept: a pool that becomes empty and full again takes no memory from the host.
  if (runs_[run].empty() && runs_.size() > 1) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(run));
}

std::vector<Block*> FreeBlocks::all() const {
  std::vector<Block*> blocks;
  for (const std::vector<Entry>& run : runs_) {
    for (const Entry& entry : run) blocks.push_back(entry.block);
  }
  return blocks;
}

std::vector<Block*> Pool::all_free_blocks() const {
  std::vector<Block*> blocks;
  const std::map<int64_t, const FreeBlocks*> streams = [&] {
    std::map<int64_t, const FreeBlocks*> sorted;
    for (const auto& [stream, free_blocks] : by_stream_) sorted.emplace(stream, &free_blocks);
    return sorted;
  }();
  for (const auto& [stream, free_blocks] : streams) {
    const std::vector<Block*> some = free_blocks->all();
    blocks.insert(blocks.end(), some.begin(), some.end());
  }
  return blocks;
}

void LiveBlocks::erase(uintptr_t address) {
  size_t hole = home(address);
  while (slots_[hole].address != address) hole = next(hole);
  // Later entries of the same run move up, so that no search ends early at the hole.
  for (size_t slot = next(hole); slots_[slot].block != nullptr; slot = next(slot)) {
    const size_t mask = slots_.size() - 1;
    const size_t distance_home = (slot - home(slots_[slot].address)) & mask;
    if (distance_home < ((slot - hole) & mask)) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = {};
  --count_;
}

void LiveBlocks::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.block != nullptr) place(slot);
  }
}

Block* BlockStore::take() {
  if (spare_ == nullptr) {
    constexpr size_t kSlab = 64;
    slabs_.push_back(std::make_unique<Block[]>(kSlab));
    for (size_t i = 0; i < kSlab; ++i) {
      slabs_.back()[i].next = spare_;
      spare_ = &slabs_.back()[i];
    }
  }
  Block* block = spare_;
  spare_ = block->next;
  block->previous = block->next = nullptr;
  block->allocated = block->leaving = false;
  block->mapped = true;
  block->requested = 0;
  return block;
}

void BlockStore::give_back(Block* block) {
  block->extra.reset();
  block->next = spare_;
  spare_ = block;
}

}  // namespace loom::runtime
