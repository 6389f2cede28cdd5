// Races between the threads of a block on global memory: an access that neither a barrier nor a function of
// their warp puts behind another thread's to the same byte, where one of the two writes. Two writes of one
// value are none. Locks and counters order threads as well: what a warp does behind an atomic of its own is
// not looked at up to the next barrier, so that no race is reported that is none.
#pragma once

#include <string.h>

#include <algorithm>
#include <unordered_map>

#include "loom_cuda/engine.h"

namespace loom_cuda {

struct ThreadRaces {
  static constexpr unsigned kMostThreads = 1024, kWarps = kMostThreads / 32, kBytes = 2;  // those of halves
  // Of one interval between barriers, some 100 bytes each: what comes beyond them is not looked at.
  static constexpr size_t kMostWords = 1 << 20;

  struct Mark {
    const void* from;  // null: there is none
    uint32_t time;     // of its thread
    uint16_t thread;
    uint8_t bytes;  // of the word, one bit each
  };
  // The last write and the last reads of two threads.
  struct Word {
    Mark write, reads[2];
  };
  // A write behind another thread's, which races if it changes what is there.
  struct Pending {
    uintptr_t address = 0;  // 0: there is none
    unsigned bytes, thread;
    const void* from;
    Mark other;
    char before[16];
  };

  std::unordered_map<uintptr_t, Word> words;
  Pending pending;
  // Of each thread, in this block: barriers behind it; Lamport's clock of what its warp does together; that
  // clock and one while it waits for lanes of its warp, else 0.
  uint32_t barriers[kMostThreads], times[kMostThreads], arrivals[kMostThreads];
  uint32_t interval;        // the barriers in front of what `words` has
  uint32_t atomic[kWarps];  // barriers, and one, in front of the last atomic of a warp

  void begin_block() {
    words = {};
    pending.address = 0;
    memset(barriers, 0, sizeof(barriers));
    memset(times, 0, sizeof(times));
    memset(arrivals, 0, sizeof(arrivals));
    memset(atomic, 0, sizeof(atomic));
    interval = 0;
  }
  void pass_barrier(unsigned rank) { ++barriers[rank]; }
  void arrive(unsigned rank) { arrivals[rank] = times[rank] + 1; }
  // A thread goes on behind a meeting with lanes of its warp. The first one notes the time of all: the next
  // one may go on when that has arrived at a later meeting.
  void leave(unsigned rank, unsigned mask) {
    if (arrivals[rank] == 0) return;
    uint32_t* const lanes = arrivals + rank / 32 * 32;
    uint32_t latest = arrivals[rank];
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (mask >> lane & 1) latest = std::max(latest, lanes[lane]);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) == 0 || lanes[lane] == 0) continue;
      times[rank / 32 * 32 + lane] = latest;
      lanes[lane] = 0;
    }
  }

  // Before an access to memory of the device by the thread that runs.
  void note(uintptr_t address, unsigned bytes, unsigned rank, bool is_written, bool is_atomic,
            const void* from) {
    settle();
    if (interval != barriers[rank]) {
      words = {};
      interval = barriers[rank];
    }
    uint32_t& atomic_of_warp = atomic[rank / 32];
    if (is_atomic) {
      atomic_of_warp = interval + 1;
      return;
    }
    if (atomic_of_warp == interval + 1) return;
    Mark other{};
    for (uintptr_t at = address; at < address + bytes;) {
      const uintptr_t end = std::min(address + bytes, (at / kBytes + 1) * kBytes);
      const unsigned mask = ((1U << (end - at)) - 1) << at % kBytes;
      const auto found = words.find(at / kBytes);
      if (found != words.end() || words.size() < kMostWords) {
        Word& word = found != words.end() ? found->second : words[at / kBytes];
        const Mark own{from, times[rank], static_cast<uint16_t>(rank), static_cast<uint8_t>(mask)};
        if (is_written) {
          for (const Mark& read : word.reads) {
            if (races(read, own)) fail(read, false, address, bytes, rank, true, from);
          }
          if (races(word.write, own)) other = word.write;
          word.write = joined(word.write, own);
        } else {
          if (races(word.write, own)) fail(word.write, true, address, bytes, rank, false, from);
          if (word.reads[0].thread != own.thread) word.reads[1] = word.reads[0];
          word.reads[0] = joined(word.reads[0], own);
        }
      }
      at = end;
    }
    if (other.from == nullptr || bytes > sizeof(pending.before)) return;
    pending.address = address;
    pending.bytes = bytes;
    pending.thread = rank;
    pending.from = from;
    pending.other = other;
    memcpy(pending.before, reinterpret_cast<const void*>(address), bytes);
  }
  // The last write has happened.
  void settle() {
    const uintptr_t address = pending.address;
    if (address == 0) return;
    pending.address = 0;
    if (memcmp(pending.before, reinterpret_cast<const void*>(address), pending.bytes) == 0) return;
    fail(pending.other, true, address, pending.bytes, pending.thread, true, pending.from);
  }

 private:
  static bool races(const Mark& earlier, const Mark& own) {
    if (earlier.from == nullptr || earlier.thread == own.thread || (earlier.bytes & own.bytes) == 0)
      return false;
    return earlier.thread / 32 != own.thread / 32 || earlier.time >= own.time;
  }
  // Bytes of a word may be written one by one.
  static Mark joined(const Mark& earlier, Mark own) {
    if (earlier.from == own.from && earlier.thread == own.thread && earlier.time == own.time)
      own.bytes |= earlier.bytes;
    return own;
  }
  // The engine knows lines and positions: it gets both accesses, the first as the access that it looks for.
  static void fail(const Mark& earlier, bool was_written, uintptr_t address, unsigned bytes, unsigned rank,
                   bool is_written, const void* from) {
    loom_cuda_access_shared(address, bytes, earlier.thread, was_written, was_written && is_written,
                            earlier.from);
    loom_cuda_access_shared(address, bytes, rank, is_written, 0, from);
  }
};

}  // namespace loom_cuda
