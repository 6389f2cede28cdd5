// Ranks of other machines, over TCP. What such a rank shows is received into a segment of this process by a
// thread, where it is read as that of a rank of this machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "distributed/transport/segment.h"

namespace loom::distributed {

// Where a rank can be reached, as others read it in the group's store.
struct Address {
  std::string host;
  int port = 0;
  uint64_t token = 0;  // who knows it belongs to the group
};

// A socket that others connect to. Throws loom::Error.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const Address& address() const noexcept { return address_; }
  struct Arrived {
    int socket = -1;  // −1: no rank within the time
    int rank = -1;
    bool has_messages = false;
  };
  Arrived accept(int milliseconds);

 private:
  int socket_ = -1;
  Address address_;
};

// −1, with the reason, when the rank cannot be reached now.
int connect_to(const Address& address, int own_rank, bool has_messages, std::string* reason);

// Both connections to a rank.
class Remote {
 public:
  // Takes the sockets over. `mirror` has what the rank shows; `own`: whose bell rings then.
  Remote(int rounds, int messages, Segment& mirror, SegmentHeader& own, int own_rank);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // False when the connection is gone.
  bool send_round(uint64_t number, const Slot& slot, size_t bytes) noexcept;
  void send_failure(const std::string& reason) noexcept;
  // As many bytes of a message as the connection takes now.
  size_t send_message(const char* data, size_t bytes) noexcept;
  // Both connections have ended, and what came over them has been received.
  bool has_ended() const noexcept { return num_ended_.load(std::memory_order_acquire) == 2; }

 private:
  void receive_rounds() noexcept;
  void receive_messages() noexcept;
  void end() noexcept;

  const int rounds_, messages_;
  Segment& mirror_;
  SegmentHeader& own_;
  const int own_rank_;
  std::atomic<int> num_ended_{0};
  std::atomic<bool> is_closing_{false};
  std::thread rounds_thread_, messages_thread_;
};

}  // namespace loom::distributed
