// What a stream runs when it reaches a collective.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/work.h"
#include "driver/driver.h"
#include "runtime/simulated_clock.h"

namespace loom::distributed {

inline bool is_message_kind(Kind kind) noexcept { return kind == Kind::kSend || kind == Kind::kRecv; }

// Under NCCL's rules: whether an operation whose time is over ends the process.
void set_time_outs_end_process(bool ends) noexcept;

struct Command {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<Outcome> outcome;
  std::vector<Task> tasks;
  std::chrono::milliseconds timeout{};
  int global_rank = 0;
  std::vector<int64_t> records;                      // of the flight recorder
  std::shared_ptr<runtime::simulated::Joint> joint;  // null: its time waits for no other rank
  bool has_begun = false;

  // Called once, or by a graph any number of times.
  static void run(void* command, driver::Stream stream);
  static void release(void* command) noexcept;

 private:
  void run();
};

}  // namespace loom::distributed
