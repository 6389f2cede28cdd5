// Memory of one rank that the other ranks of its machine map: an unnamed file, whose pages end with the
// processes that map it. A rank writes into its own segment, and reads those of others.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "util/file_name.h"

namespace loom::distributed {

// What a rank shows to all others in one round of a collective.
struct Slot {
  static constexpr size_t kHeaderBytes = 512, kDataBytes = (size_t{512} << 10) - kHeaderBytes;
  char header[kHeaderBytes];
  char data[kDataBytes];
};

// Bytes on their way from one rank to another: one writes, one reads.
struct Ring {
  static constexpr size_t kDataBytes = size_t{256} << 10;
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) char data[kDataBytes];
};

struct SegmentHeader {
  static constexpr size_t kFailureBytes = 2048, kNumSlots = 3;
  std::atomic<uint32_t> is_ready;
  // Rounds that the rank has posted. Round r is in slot r % 3. A rank posts r + 1 before it has read r, so
  // that it copies while others do: what it writes r + 3 over has been read by all that have posted r + 2.
  alignas(64) std::atomic<uint64_t> posted;
  // Rung by other ranks when they have done something that this rank may wait for.
  alignas(64) std::atomic<int32_t> bell;
  std::atomic<int32_t> sleepers;
  // Not 0: this rank has failed, for the reason in `failure`, and takes part in nothing more.
  alignas(64) std::atomic<uint32_t> has_failed;
  char failure[kFailureBytes];
  alignas(64) Slot slots[kNumSlots];
};

// A mapped segment: the header, and a ring to each rank behind it.
class Segment {
 public:
  // A new one. Throws loom::Error when the host refuses.
  static std::unique_ptr<Segment> make(int num_ranks);
  // That of another process, or null, with the reason.
  static std::unique_ptr<Segment> open(const FileName& name, int num_ranks, std::string* reason);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentHeader& header() noexcept { return *static_cast<SegmentHeader*>(address_); }
  Ring& ring_to(int rank) noexcept {
    return *reinterpret_cast<Ring*>(static_cast<char*>(address_) + kRingsAt +
                                    static_cast<size_t>(rank) * sizeof(Ring));
  }
  const FileName& name() const noexcept { return name_; }

 private:
  static constexpr size_t kRingsAt = (sizeof(SegmentHeader) + 63) / 64 * 64;
  Segment(void* address, size_t bytes, int file) : address_(address), bytes_(bytes), file_(file) {}
  static size_t bytes_for(int num_ranks) { return kRingsAt + static_cast<size_t>(num_ranks) * sizeof(Ring); }

  void* const address_;
  const size_t bytes_;
  const int file_;  // open while others may look for it; −1: another's
  FileName name_{};
};

// Another process, whose end is noticed.
class Process {
 public:
  explicit Process(int id);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  // A process that has ended but was not waited for counts as ended.
  bool has_ended() const noexcept;

 private:
  const int id_, file_;
};

// Processes that can map each other's segments have the same.
std::string machine_name();

// Wake who sleeps on a segment's bell; sleep until it is rung, so long at most.
void ring_bell(SegmentHeader& of) noexcept;
void sleep_on_bell(SegmentHeader& own, int32_t heard, std::chrono::nanoseconds longest) noexcept;

}  // namespace loom::distributed
