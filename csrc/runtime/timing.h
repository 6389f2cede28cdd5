// When commands run. Running times kernels, copies, fills and what a graph replays, in the thread that runs
// them; nothing else measures it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/driver.h"
#include "runtime/clock.h"

namespace loom::runtime {

// The times of one command, in nanoseconds of clock::now_ns(); -1 until it has come so far. A command that is
// dropped, or fails before it runs, never begins.
struct CommandTimes {
  const int64_t issued_ns = clock::now_ns();
  std::atomic<int64_t> returned_ns{-1};  // the call that issued it has returned
  // The same two by the host's own clock, whatever the time is simulated to be.
  const int64_t host_issued_ns = clock::host_ns();
  std::atomic<int64_t> host_returned_ns{-1};
  std::atomic<int64_t> began_ns{-1};  // of kernels, copies, fills
  std::atomic<int64_t> ended_ns{-1};  // written last: then all of them are known
};

namespace timing {

using Shared = std::shared_ptr<CommandTimes>;

// A command runs while it lives. Null: not timed.
class Running {
 public:
  explicit Running(CommandTimes* times) : times_(times) {
    if (times_ != nullptr) times_->began_ns = clock::now_ns();
  }
  ~Running() {
    if (times_ != nullptr) times_->ended_ns = clock::now_ns();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  CommandTimes* const times_;
};

// A kernel that runs `kernel`, which it takes over, and notes its times.
driver::Kernel timed(const driver::Kernel& kernel, const Shared& times);

// For a driver that executes nothing: the command took no time.
void note_not_run(CommandTimes& times) noexcept;

}  // namespace timing

}  // namespace loom::runtime
