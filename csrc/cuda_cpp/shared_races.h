// Races between the threads of a block on its shared memory: an access that no barrier, and no function of
// their warp, puts behind another thread's to the same byte. One of the two writes, and not both are atomic.
// Two plain writes are let through, since threads often write the same value; a plain one and an atomic are
// not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace loom::cuda_cpp {

class SharedRaces {
 public:
  struct Access {
    unsigned thread = 0;
    bool is_written = false, is_atomic = false;
    const void* from = nullptr;  // the code; null: there was none
    // When: barriers of the block before it, and meetings of the thread with lanes of its warp.
    uint32_t barriers = 0, meetings = 0;
  };

  void begin_block() noexcept { ++block_; }
  void pass_barrier() noexcept { ++barriers_; }
  // Lanes of a warp have waited for one another.
  void meet(unsigned warp, unsigned lanes);
  // Notes an access. Returns the one that it races with, as long as nothing else is called; null: none.
  const Access* find(Access access, uintptr_t address, size_t bytes);

 private:
  static constexpr unsigned kLanes = 32, kMostThreads = 1024;
  static constexpr uintptr_t kWord = 4;
  // The last plain write, the last atomic, and the last reads of two threads.
  struct Byte {
    Access write, atomic;
    std::array<Access, 2> reads;
  };
  struct Word {
    uint64_t block = 0;
    std::array<Byte, kWord> bytes;
  };
  bool races(const Access& earlier, const Access& access) const noexcept;
  const Access* note(Byte& byte, const Access& access) const noexcept;

  uint64_t block_ = 1;
  uint32_t barriers_ = 0;
  std::unordered_map<uintptr_t, Word> words_;
  Access found_;
  // seen_[thread][lane]: how many meetings of that lane of its warp are behind what the thread does now.
  std::vector<std::array<uint32_t, kLanes>> seen_{kMostThreads};
};

}  // namespace loom::cuda_cpp
