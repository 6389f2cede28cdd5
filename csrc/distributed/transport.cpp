#include "distributed/transport.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>

#include "driver/error.h"
#include "util/spin.h"

namespace loom::distributed {

namespace {

using namespace std::chrono_literals;

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string key_of(int rank) { return "loom/" + std::to_string(rank); }

// How long it may take until a rank notices that another one has ended.
constexpr auto kLookEvery = 50ms;

}  // namespace

Transport::Transport(c10::intrusive_ptr<c10d::Store> store, int rank, int num_ranks)
    : store_(std::move(store)), rank_(rank), num_ranks_(num_ranks) {}

void Transport::connect(Clock::time_point deadline) {
  if (is_connected()) return;
  const std::lock_guard<std::mutex> lock(connecting_);
  if (is_connected()) return;
  if (has_failed()) throw Error(failure());
  std::vector<std::unique_ptr<Segment>> made(static_cast<size_t>(num_ranks_));
  if (segments_.empty()) {
    made[static_cast<size_t>(rank_)] = Segment::make(num_ranks_);
    segments_ = std::move(made);
    processes_.resize(static_cast<size_t>(num_ranks_));
  }
  const std::string machine = machine_name();
  const FileName& name = segments_[static_cast<size_t>(rank_)]->name();
  store_->set(key_of(rank_), bytes_of(std::to_string(name.process) + " " + std::to_string(name.descriptor) +
                                      " " + std::to_string(name.inode) + " " + machine));
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer != rank_) find(peer, machine, deadline);
  }
  is_connected_.store(true, std::memory_order_release);
}

// What an earlier group left in the store under this name leads nowhere, and is replaced some time.
void Transport::find(int peer, const std::string& machine, Clock::time_point deadline) {
  std::string reason = "it has not come to its first collective of the group";
  for (auto pause = 1ms;; pause = std::min(pause * 2, 50ms)) {
    if (has_failed()) throw Error(failure());
    if (store_->check({key_of(peer)})) {
      const std::vector<uint8_t> told = store_->get(key_of(peer));
      std::istringstream text(std::string(told.begin(), told.end()));
      FileName name{};
      std::string its_machine;
      text >> name.process >> name.descriptor >> name.inode >> its_machine;
      if (its_machine != machine) {
        throw NotSupported("collectives of this backend are between processes of one machine: rank " +
                           std::to_string(rank_) + " is on " + machine + ", rank " + std::to_string(peer) +
                           " on " + its_machine +
                           " (boot, process and network namespace). Use gloo with "
                           "tensors of the host between machines");
      }
      auto& segment = segments_[static_cast<size_t>(peer)];
      segment = Segment::open(name, num_ranks_, &reason);
      if (segment != nullptr) {
        processes_[static_cast<size_t>(peer)] = std::make_unique<Process>(name.process);
        return;
      }
    }
    if (Clock::now() >= deadline) {
      throw TimedOut("rank " + std::to_string(rank_) + " has waited for rank " + std::to_string(peer) + ": " +
                     reason);
    }
    std::this_thread::sleep_for(pause);
  }
}

void Transport::check_failures() {
  if (has_failed()) throw Error(failure());
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const SegmentHeader& other = of(peer);
    if (peer != rank_ && other.has_failed.load(std::memory_order_acquire) != 0) {
      throw Error(std::string(other.failure, strnlen(other.failure, sizeof other.failure)));
    }
  }
}

void Transport::check(std::span<const int> peers, Clock::time_point deadline, bool is_over) {
  if (has_failed()) throw Error(failure());
  for (const int peer : peers) {
    if (peer == rank_) continue;
    SegmentHeader& other = of(peer);
    if (other.has_failed.load(std::memory_order_acquire) != 0) {
      throw Error(std::string(other.failure, strnlen(other.failure, sizeof other.failure)));
    }
    if (is_over && processes_[static_cast<size_t>(peer)]->has_ended()) {
      throw Error(
          "rank " + std::to_string(peer) + " has ended: rank " + std::to_string(rank_) +
          " waits for it in vain (ncclRemoteError: remote process exited or there was a network error)");
    }
  }
  if (Clock::now() >= deadline) {
    std::string who;
    for (const int peer : peers) {
      if (peer != rank_) who += (who.empty() ? "rank " : ", ") + std::to_string(peer);
    }
    throw TimedOut("rank " + std::to_string(rank_) + " has waited too long for " + who);
  }
}

template <typename Ready>
void Transport::wait(Ready&& ready, std::span<const int> peers, Clock::time_point deadline) {
  if (driver::spin_until(ready)) return;
  auto next_look = Clock::now() + kLookEvery;
  SegmentHeader& mine = own();
  for (;;) {
    const int32_t heard = mine.bell.load(std::memory_order_seq_cst);
    mine.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const bool is_ready = ready();
    if (!is_ready) sleep_on_bell(mine, heard);
    mine.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (is_ready || ready()) return;
    const bool looks = Clock::now() >= next_look;
    if (looks) next_look = Clock::now() + kLookEvery;
    try {
      check(peers, deadline, looks);
    } catch (const Error&) {
      // It may have done its part before it ended.
      if (ready()) return;
      throw;
    }
  }
}

uint64_t Transport::post() noexcept {
  own().posted.store(++num_posted_, std::memory_order_release);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer != rank_) ring_bell(of(peer));
  }
  return num_posted_ - 1;
}

const Slot& Transport::await(int peer, uint64_t round, Clock::time_point deadline) {
  SegmentHeader& other = of(peer);
  const auto has_posted = [&] { return other.posted.load(std::memory_order_acquire) > round; };
  const std::array<int, 1> peers{peer};
  if (!has_posted()) wait(has_posted, peers, deadline);
  return other.slots[round % SegmentHeader::kNumSlots];
}

size_t Transport::advance(Transfer& transfer) noexcept {
  Ring& ring = transfer.is_sent ? segments_[static_cast<size_t>(rank_)]->ring_to(transfer.peer)
                                : segments_[static_cast<size_t>(transfer.peer)]->ring_to(rank_);
  const uint64_t written = ring.written.load(std::memory_order_acquire);
  const uint64_t taken = ring.taken.load(std::memory_order_acquire);
  const uint64_t position = transfer.is_sent ? written : taken;
  const size_t available = transfer.is_sent ? Ring::kDataBytes - (written - taken) : written - taken;
  const size_t count = std::min(available, transfer.bytes - transfer.done);
  if (count == 0) return 0;
  const size_t at = position % Ring::kDataBytes, first = std::min(count, Ring::kDataBytes - at);
  char* const data = transfer.data + transfer.done;
  if (transfer.is_sent) {
    std::memcpy(ring.data + at, data, first);
    std::memcpy(ring.data, data + first, count - first);
    ring.written.store(written + count, std::memory_order_release);
  } else {
    std::memcpy(data, ring.data + at, first);
    std::memcpy(data + first, ring.data, count - first);
    ring.taken.store(taken + count, std::memory_order_release);
  }
  transfer.done += count;
  if (transfer.peer != rank_) ring_bell(of(transfer.peer));
  return count;
}

void Transport::move(std::span<Transfer> transfers, Clock::time_point deadline) {
  const auto is_done = [](const Transfer& one) { return one.done == one.bytes; };
  const auto advance_all = [&] {
    bool has_moved = false;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& one = transfers[i];
      if (is_done(one)) continue;
      // Of a pair in one direction the earlier comes first.
      const bool is_behind = std::any_of(
          transfers.begin(), transfers.begin() + static_cast<long>(i), [&](const Transfer& other) {
            return other.peer == one.peer && other.is_sent == one.is_sent && !is_done(other);
          });
      if (is_behind || advance(one) == 0) continue;
      has_moved = true;
      if (is_done(one) && one.then) one.then();
    }
    return has_moved;
  };
  while (!std::all_of(transfers.begin(), transfers.end(), is_done)) {
    if (advance_all()) continue;
    std::vector<int> peers;
    for (const Transfer& one : transfers) {
      if (!is_done(one)) peers.push_back(one.peer);
    }
    wait(advance_all, peers, deadline);
  }
}

void Transport::fail(const std::string& reason) noexcept {
  const std::lock_guard<std::mutex> lock(failing_);
  if (has_failed()) return;
  failure_ = reason;
  has_failed_.store(true, std::memory_order_release);
  if (!is_connected()) return;
  SegmentHeader& mine = own();
  const size_t count = std::min(reason.size(), sizeof mine.failure - 1);
  std::memcpy(mine.failure, reason.data(), count);
  mine.failure[count] = 0;
  mine.has_failed.store(1, std::memory_order_release);
  ring_bell(mine);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer != rank_) ring_bell(of(peer));
  }
}

std::string Transport::failure() const {
  const std::lock_guard<std::mutex> lock(failing_);
  return failure_;
}

}  // namespace loom::distributed
