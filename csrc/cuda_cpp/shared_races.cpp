#include "cuda_cpp/shared_races.h"

#include <algorithm>

namespace loom::cuda_cpp {

void SharedRaces::meet(unsigned warp, unsigned lanes) {
  std::array<uint32_t, kLanes> all{};
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    auto& own = seen_[warp * kLanes + lane];
    ++own[lane];
    for (unsigned i = 0; i < kLanes; ++i) all[i] = std::max(all[i], own[i]);
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) seen_[warp * kLanes + lane] = all;
  }
}

bool SharedRaces::is_before(const Access& earlier, unsigned thread) const noexcept {
  if (earlier.thread == thread || earlier.barriers != barriers_) return true;
  return earlier.thread / kLanes == thread / kLanes &&
         seen_[thread][earlier.thread % kLanes] > earlier.meetings;
}

bool SharedRaces::races(const Access& earlier, const Access& access) const noexcept {
  return (earlier.bytes & access.bytes) != 0 && !(earlier.is_atomic && access.is_atomic) &&
         !is_before(earlier, access.thread);
}

const SharedRaces::Access* SharedRaces::find(Access access, uintptr_t address, size_t bytes) {
  access.barriers = barriers_;
  access.meetings = seen_[access.thread][access.thread % kLanes];
  for (const uintptr_t end = address + bytes; address < end;) {
    const uintptr_t first = address % kWord, last = std::min(kWord, first + (end - address));
    Word& word = words_[address / kWord];
    if (word.block != block_) word = {block_, {}, {}};
    access.bytes = static_cast<uint8_t>(((1U << last) - 1) & ~((1U << first) - 1));
    address += last - first;
    if (access.is_written) {
      for (const Access& read : word.reads) {
        if (races(read, access)) return &(found_ = read);
      }
      word.write = access;
    } else {
      if (races(word.write, access)) return &(found_ = word.write);
      if (word.reads[0].thread != access.thread) word.reads[1] = word.reads[0];
      word.reads[0] = access;
    }
  }
  return nullptr;
}

}  // namespace loom::cuda_cpp
