// What a stream runs when it reaches a collective.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/work.h"
#include "driver/driver.h"
#include "runtime/simulated_clock.h"

namespace loom::distributed {

inline bool is_message_kind(Kind kind) noexcept { return kind == Kind::kSend || kind == Kind::kRecv; }

struct Command {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<Outcome> outcome;
  std::vector<Task> tasks;
  std::chrono::milliseconds timeout{};
  std::chrono::milliseconds own_extra_time{};  // given back when it has ended
  int global_rank = 0;
  std::vector<int64_t> records;                      // of the flight recorder
  std::shared_ptr<runtime::simulated::Joint> joint;  // null: its time waits for no other rank
  std::optional<uint64_t> shown;  // the first round of a collective, where meet_others() has posted it
  bool has_met = false;           // what meet_others() has found
  bool has_begun = false;
  bool is_dry = false;       // the driver runs nothing
  bool is_captured = false;  // kept by a graph, and pending only while it runs

  // Where it has not run, what it got of the group's extra time goes back.
  ~Command() { shared->extra_time.take_back(own_extra_time); }

  // Finds whether the other ranks are there, within some 30 microseconds, and the rest needs no wait. A
  // kernel of the command's stream, as it reads what the command gives.
  void meet_others();
  // Called once, or by a graph any number of times.
  static void run(void* command, driver::Stream stream);
  static void release(void* command) noexcept;

 private:
  void run();
  void say_when_ready();
  void move_data();
  std::string timed_out(const std::string& reason, std::chrono::milliseconds took);
};

}  // namespace loom::distributed
