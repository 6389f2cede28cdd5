// Bytes between the ranks of a group: rounds, in which each rank shows bytes to all, and messages from one
// rank to another. Every wait ends: with what it waits for, with a failure of a rank that it waits for, with
// the end of that rank's process, or when its time is over.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/operation.h"
#include "distributed/transport/remote.h"
#include "distributed/transport/rendezvous.h"
#include "distributed/transport/segment.h"
#include "driver/error.h"

namespace loom::distributed {

// What NCCL says of two ranks on one device.
std::string duplicate_device(int rank, int other, int device);

// A wait took longer than it may.
struct TimedOut : Error {
  using Error::Error;
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts nothing.
  Transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks);

  int rank() const noexcept { return rank_; }
  int num_ranks() const noexcept { return num_ranks_; }

  // Finds the other ranks, if that has not been done. Called by any thread. Where ranks say which device of
  // their machine they use, two on one device are refused; −1: this one does not say.
  void connect(Clock::time_point deadline, int device = -1);
  bool is_connected() const noexcept { return is_connected_.load(std::memory_order_acquire); }

  // --- rounds, of one thread at a time ---

  // Where this rank writes what it shows in its next round: once all ranks have posted the one before.
  Slot& next_slot() noexcept { return own().slots[num_posted_ % SegmentHeader::kNumSlots]; }
  // Shows so many bytes of its data; the round's number.
  uint64_t post(size_t bytes);
  // What a rank shows in a round, once it does.
  const Slot& await(int peer, uint64_t round, Clock::time_point deadline);
  bool has_posted(int peer, uint64_t round) noexcept {
    return of(peer).posted.load(std::memory_order_acquire) > round;
  }
  const Slot& slot(int peer, uint64_t round) noexcept {
    return of(peer).slots[round % SegmentHeader::kNumSlots];
  }
  // All ranks are of this machine.
  bool is_local() const noexcept;

  // --- messages; of one thread at a time for each peer and direction ---

  struct Transfer {
    int peer;
    bool is_sent;
    char* data;
    size_t bytes;
    std::function<void()> then{};  // when it is complete; may throw
    size_t done = 0;
  };
  static constexpr size_t kMostAtOnce = Ring::kDataBytes;
  // How many bytes a rank of this machine could be sent now, or has sent.
  size_t movable(int peer, bool is_sent) noexcept;
  // Copies the first bytes that it has sent, and leaves them there.
  void peek(int peer, char* to, size_t bytes) noexcept;
  // Moves what can be moved now; the bytes.
  size_t advance(Transfer& transfer) noexcept;
  // Moves all of them, those of a pair in their order.
  void move(std::span<Transfer> transfers, Clock::time_point deadline);

  // --- failures ---

  // From now on this rank takes part in nothing: its own waits and those of others end with the reason.
  void fail(const std::string& reason) noexcept;
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  std::string failure() const;
  // Why this rank or another has failed; empty where none has.
  std::string known_failure();
  // Throws where one has. A rank that has failed may have shown its part before.
  void check_failures();

 private:
  SegmentHeader& own() noexcept { return segments_[static_cast<size_t>(rank_)]->header(); }
  SegmentHeader& of(int peer) noexcept { return segments_[static_cast<size_t>(peer)]->header(); }
  Ring& ring(int peer, bool is_sent) noexcept;
  void check(std::span<const int> peers, Clock::time_point deadline, bool is_over);
  template <typename Ready>
  void wait(Ready&& ready, std::span<const int> peers, Clock::time_point deadline,
            std::chrono::nanoseconds slice = std::chrono::milliseconds(20));
  struct Found {
    FileName segment{};
    std::string machine;
    Address address;
    int device = -1;
  };
  // What a rank has written into the store; false before it has.
  bool look_up(int peer, Found* found);
  void find(int peer, const std::string& machine, Clock::time_point deadline);
  // Is connected to by ranks of other machines with higher numbers; find() connects to the others.
  void meet(Clock::time_point deadline);
  // A rank of this machine has ended before it could be found.
  bool has_vanished(int peer, const std::string& machine);
  bool has_ended(int peer) const noexcept;

  Rendezvous rendezvous_;
  const int rank_, num_ranks_;
  std::mutex connecting_;
  std::atomic<bool> is_connected_{false}, has_failed_{false};
  mutable std::mutex failing_;
  std::string failure_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<std::unique_ptr<Process>> processes_;  // of ranks of this machine
  std::vector<std::unique_ptr<Remote>> remotes_;     // ranks of others; destroyed before their segments
  std::unique_ptr<Listener> listener_;               // until all are connected
  std::vector<std::pair<std::string, int>> places_;  // of each rank: machine and device
  uint64_t num_posted_ = 0;
};

}  // namespace loom::distributed
