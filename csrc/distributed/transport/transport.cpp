#include "distributed/transport/transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>

#include "driver/error.h"
#include "telemetry/activity_reader.h"
#include "util/spin.h"

namespace loom::distributed {

namespace {

using namespace std::chrono_literals;

std::string key_of(int rank) { return "loom/" + std::to_string(rank); }
// Who a rank is, from the moment at which the group is made.
std::string process_key_of(int rank) { return "loom/process/" + std::to_string(rank); }

// How long it may take until a rank notices that another one has ended.
constexpr auto kLookEvery = 50ms;

}  // namespace

Transport::Transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks)
    : rendezvous_(store), rank_(rank), num_ranks_(num_ranks) {
  if (num_ranks_ == 1) return;
  rendezvous_.set(process_key_of(rank_), std::to_string(getpid()) + " " + machine_name());
}

std::string duplicate_device(int rank, int other, int device) {
  return "ncclInvalidUsage: Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
         std::to_string(other) + " both on CUDA device " + std::to_string(device) +
         ". Call torch.cuda.set_device(rank) first, and give each rank tensors of its own device";
}

void Transport::connect(Clock::time_point deadline, int device) {
  if (is_connected()) return;
  const std::lock_guard<std::mutex> lock(connecting_);
  if (is_connected()) return;
  if (has_failed()) throw Error(failure());
  const auto n = static_cast<size_t>(num_ranks_);
  if (segments_.empty()) {
    std::unique_ptr<Segment> made = Segment::make(num_ranks_);
    segments_.resize(n);
    processes_.resize(n);
    remotes_.resize(n);
    places_.resize(n);
    segments_[static_cast<size_t>(rank_)] = std::move(made);
  }
  if (listener_ == nullptr && num_ranks_ > 1) listener_ = std::make_unique<Listener>();
  const std::string machine = machine_name();
  const FileName& name = segments_[static_cast<size_t>(rank_)]->name();
  const Address address = listener_ == nullptr ? Address{"-"} : listener_->address();
  std::ostringstream text;
  text << name.process << ' ' << name.descriptor << ' ' << name.inode << ' ' << machine << ' ' << address.host
       << ' ' << address.port << ' ' << address.token << ' ' << device;
  places_[static_cast<size_t>(rank_)] = {machine, device};
  rendezvous_.set(key_of(rank_), text.str());
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer != rank_) find(peer, machine, deadline);
  }
  meet(deadline);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const auto& place = places_[static_cast<size_t>(rank)];
    const auto first = std::find(places_.begin(), places_.end(), place);
    const auto other = static_cast<int>(first - places_.begin());
    if (place.second >= 0 && other != rank) throw Error(duplicate_device(rank, other, place.second));
  }
  listener_.reset();
  is_connected_.store(true, std::memory_order_release);
}

bool Transport::look_up(int peer, Found* found) {
  std::string told;
  if (!rendezvous_.find(key_of(peer), &told)) return false;
  std::istringstream text(told);
  text >> found->segment.process >> found->segment.descriptor >> found->segment.inode >> found->machine >>
      found->address.host >> found->address.port >> found->address.token >> found->device;
  return !text.fail();
}

// What an earlier group left in the store under this name leads nowhere, and is replaced some time.
void Transport::find(int peer, const std::string& machine, Clock::time_point deadline) {
  std::string reason = "it has not come to its first collective of the group";
  auto& segment = segments_[static_cast<size_t>(peer)];
  for (auto pause = 1ms; segment == nullptr; pause = std::min(pause * 2, 50ms)) {
    if (has_failed()) throw Error(failure());
    Found found;
    if (look_up(peer, &found)) {
      places_[static_cast<size_t>(peer)] = {found.machine, found.device};
      if (found.machine == machine) {
        segment = Segment::open(found.segment, num_ranks_, &reason);
        if (segment != nullptr) {
          processes_[static_cast<size_t>(peer)] = std::make_unique<Process>(found.segment.process);
        }
      } else if (peer > rank_) {
        segment = Segment::make(num_ranks_);  // it will connect to this rank
      } else {
        const int rounds = connect_to(found.address, rank_, /*has_messages=*/false, &reason);
        const int messages = rounds == -1 ? -1 : connect_to(found.address, rank_, true, &reason);
        if (messages == -1 && rounds != -1) close(rounds);
        if (messages != -1) {
          segment = Segment::make(num_ranks_);
          remotes_[static_cast<size_t>(peer)] =
              std::make_unique<Remote>(rounds, messages, *segment, own(), rank_);
        }
      }
    }
    if (segment != nullptr) return;
    if (pause >= 16ms && has_vanished(peer, machine)) {
      throw Error("rank " + std::to_string(peer) +
                  " has ended before its first collective of the group: rank " + std::to_string(rank_) +
                  " waits for it in vain");
    }
    if (Clock::now() >= deadline) {
      throw TimedOut("rank " + std::to_string(rank_) + " has waited for rank " + std::to_string(peer) + ": " +
                     reason);
    }
    std::this_thread::sleep_for(pause);
  }
}

bool Transport::has_vanished(int peer, const std::string& machine) {
  std::string told;
  if (!rendezvous_.find(process_key_of(peer), &told)) return false;
  std::istringstream text(told);
  int process = 0;
  std::string its_machine;
  text >> process >> its_machine;
  return its_machine == machine && process > 0 && Process(process).has_ended();
}

void Transport::meet(Clock::time_point deadline) {
  const auto n = static_cast<size_t>(num_ranks_);
  std::vector<int> rounds(n, -1), messages(n, -1);
  for (;;) {
    int missing = -1;
    for (int peer = rank_ + 1; peer < num_ranks_; ++peer) {
      const auto place = static_cast<size_t>(peer);
      if (processes_[place] == nullptr && remotes_[place] == nullptr) missing = peer;
    }
    if (missing == -1) return;
    constexpr int kPatience = 50;
    const Listener::Arrived arrived = listener_->accept(kPatience);
    if (arrived.socket != -1) {
      if (arrived.rank <= rank_ || arrived.rank >= num_ranks_) {
        close(arrived.socket);
        continue;
      }
      const auto place = static_cast<size_t>(arrived.rank);
      (arrived.has_messages ? messages : rounds)[place] = arrived.socket;
      if (messages[place] != -1 && rounds[place] != -1) {
        remotes_[place] =
            std::make_unique<Remote>(rounds[place], messages[place], *segments_[place], own(), rank_);
      }
    }
    if (has_failed()) throw Error(failure());
    if (Clock::now() >= deadline) {
      throw TimedOut("rank " + std::to_string(rank_) + " has waited for rank " + std::to_string(missing) +
                     " of another machine to connect to " + listener_->address().host);
    }
  }
}

std::string Transport::known_failure() {
  if (has_failed()) return failure();
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const SegmentHeader& other = of(peer);
    if (peer != rank_ && other.has_failed.load(std::memory_order_acquire) != 0) {
      return std::string(other.failure, strnlen(other.failure, sizeof other.failure));
    }
  }
  return "";
}

void Transport::check_failures() {
  if (const std::string reason = known_failure(); !reason.empty()) throw Error(reason);
}

void Transport::check(std::span<const int> peers, Clock::time_point deadline, bool is_over) {
  if (has_failed()) throw Error(failure());
  for (const int peer : peers) {
    if (peer == rank_) continue;
    SegmentHeader& other = of(peer);
    if (other.has_failed.load(std::memory_order_acquire) != 0) {
      throw Error(std::string(other.failure, strnlen(other.failure, sizeof other.failure)));
    }
    if (is_over && has_ended(peer)) {
      telemetry::remove_left_over();
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
void Transport::wait(Ready&& ready, std::span<const int> peers, Clock::time_point deadline,
                     std::chrono::nanoseconds slice) {
  if (driver::spin_until(ready)) return;
  auto next_look = Clock::now() + kLookEvery;
  SegmentHeader& mine = own();
  for (;;) {
    const int32_t heard = mine.bell.load(std::memory_order_seq_cst);
    mine.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const bool is_ready = ready();
    if (!is_ready) sleep_on_bell(mine, heard, slice);
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

uint64_t Transport::post(size_t bytes) {
  const uint64_t round = num_posted_++;
  own().posted.store(num_posted_, std::memory_order_release);
  const Slot& slot = own().slots[round % SegmentHeader::kNumSlots];
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (Remote* const remote = remotes_[static_cast<size_t>(peer)].get()) {
      remote->send_round(round, slot, Slot::kHeaderBytes + bytes);
    } else if (peer != rank_) {
      ring_bell(of(peer));
    }
  }
  return round;
}

const Slot& Transport::await(int peer, uint64_t round, Clock::time_point deadline) {
  const auto is_there = [&] { return has_posted(peer, round); };
  const std::array<int, 1> peers{peer};
  if (!is_there()) wait(is_there, peers, deadline);
  return slot(peer, round);
}

bool Transport::is_local() const noexcept {
  return std::all_of(remotes_.begin(), remotes_.end(), [](const auto& remote) { return remote == nullptr; });
}

Ring& Transport::ring(int peer, bool is_sent) noexcept {
  return is_sent ? segments_[static_cast<size_t>(rank_)]->ring_to(peer)
                 : segments_[static_cast<size_t>(peer)]->ring_to(rank_);
}

size_t Transport::movable(int peer, bool is_sent) noexcept {
  const Ring& ring = this->ring(peer, is_sent);
  const uint64_t filled =
      ring.written.load(std::memory_order_acquire) - ring.taken.load(std::memory_order_acquire);
  return is_sent ? Ring::kDataBytes - filled : filled;
}

void Transport::peek(int peer, char* to, size_t bytes) noexcept {
  const Ring& ring = this->ring(peer, /*is_sent=*/false);
  const size_t at = ring.taken.load(std::memory_order_acquire) % Ring::kDataBytes;
  const size_t first = std::min(bytes, Ring::kDataBytes - at);
  std::memcpy(to, ring.data + at, first);
  std::memcpy(to + first, ring.data, bytes - first);
}

size_t Transport::advance(Transfer& transfer) noexcept {
  Ring& ring = this->ring(transfer.peer, transfer.is_sent);
  const uint64_t written = ring.written.load(std::memory_order_acquire);
  const uint64_t taken = ring.taken.load(std::memory_order_acquire);
  const uint64_t position = transfer.is_sent ? written : taken;
  const size_t available = transfer.is_sent ? Ring::kDataBytes - (written - taken) : written - taken;
  // In pieces: one side copies while the other does, and neither waits long enough to sleep.
  constexpr size_t kPiece = size_t{32} << 10;
  const size_t count = std::min({available, transfer.bytes - transfer.done, kPiece});
  if (count == 0) return 0;
  const size_t at = position % Ring::kDataBytes, first = std::min(count, Ring::kDataBytes - at);
  char* const data = transfer.data + transfer.done;
  if (transfer.is_sent && remotes_[static_cast<size_t>(transfer.peer)] != nullptr) {
    const size_t sent = remotes_[static_cast<size_t>(transfer.peer)]->send_message(
        transfer.data + transfer.done, transfer.bytes - transfer.done);
    transfer.done += sent;
    return sent;
  }
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
  if (transfer.peer != rank_ && remotes_[static_cast<size_t>(transfer.peer)] == nullptr) {
    ring_bell(of(transfer.peer));
  }
  return count;
}

void Transport::move(std::span<Transfer> transfers, Clock::time_point deadline) {
  const auto is_done = [](const Transfer& each) { return each.done == each.bytes; };
  const auto advance_all = [&] {
    bool has_moved = false;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& own = transfers[i];
      if (is_done(own)) continue;
      // Of a pair in one direction the earlier comes first.
      const bool is_behind = std::any_of(
          transfers.begin(), transfers.begin() + static_cast<long>(i), [&](const Transfer& other) {
            return other.peer == own.peer && other.is_sent == own.is_sent && !is_done(other);
          });
      if (is_behind || advance(own) == 0) continue;
      has_moved = true;
      if (is_done(own) && own.then) own.then();
    }
    return has_moved;
  };
  while (!std::all_of(transfers.begin(), transfers.end(), is_done)) {
    if (advance_all()) continue;
    std::vector<int> peers;
    // That a connection takes bytes again rings no bell.
    std::chrono::nanoseconds slice = 20ms;
    for (const Transfer& transfer : transfers) {
      if (is_done(transfer)) continue;
      peers.push_back(transfer.peer);
      if (transfer.is_sent && remotes_[static_cast<size_t>(transfer.peer)] != nullptr) slice = 200us;
    }
    wait(advance_all, peers, deadline, slice);
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
    if (Remote* const remote = remotes_[static_cast<size_t>(peer)].get()) {
      remote->send_failure(reason);
    } else if (peer != rank_) {
      ring_bell(of(peer));
    }
  }
}

bool Transport::has_ended(int peer) const noexcept {
  const Remote* const remote = remotes_[static_cast<size_t>(peer)].get();
  return remote != nullptr ? remote->has_ended() : processes_[static_cast<size_t>(peer)]->has_ended();
}

std::string Transport::failure() const {
  const std::lock_guard<std::mutex> lock(failing_);
  return failure_;
}

}  // namespace loom::distributed
