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

bool SharedRaces::races(const Access& earlier, const Access& access) const noexcept {
  if (earlier.from == nullptr || earlier.thread == access.thread || earlier.barriers != barriers_)
    return false;
  if (!earlier.is_written && !access.is_written) return false;
  // Two atomics, or two plain writes.
  if (earlier.is_written && access.is_written && earlier.is_atomic == access.is_atomic) return false;
  if (earlier.is_atomic && access.is_atomic) return false;
  return earlier.thread / kLanes != access.thread / kLanes ||
         seen_[access.thread][earlier.thread % kLanes] <= earlier.meetings;
}

const SharedRaces::Access* SharedRaces::note(Byte& byte, const Access& access) const noexcept {
  for (const Access* earlier : {&byte.write, &byte.atomic, &byte.reads[0], &byte.reads[1]}) {
    if (races(*earlier, access)) return earlier;
  }
  if (access.is_written) {
    (access.is_atomic ? byte.atomic : byte.write) = access;
  } else {
    if (byte.reads[0].thread != access.thread) byte.reads[1] = byte.reads[0];
    byte.reads[0] = access;
  }
  return nullptr;
}

const SharedRaces::Access* SharedRaces::find(Access access, uintptr_t address, size_t bytes) {
  access.barriers = barriers_;
  access.meetings = seen_[access.thread][access.thread % kLanes];
  for (const uintptr_t end = address + bytes; address < end;) {
    Word& word = words_[address / kWord];
    if (word.block != block_) word = {block_, {}};
    for (const uintptr_t last = std::min(end, (address / kWord + 1) * kWord); address < last; ++address) {
      if (const Access* const other = note(word.bytes[address % kWord], access)) return &(found_ = *other);
    }
  }
  return nullptr;
}

}  // namespace loom::cuda_cpp
