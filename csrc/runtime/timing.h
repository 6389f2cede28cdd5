// When commands run. The one place that measures it: kernels, copies, fills and what a graph replays are all
// timed by Running, in the thread that runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/driver.h"

namespace loom::runtime {

namespace timing {

// Nanoseconds of a clock that never goes back; its zero is arbitrary.
int64_t now_ns() noexcept;

}  // namespace timing

// The times of one command, in nanoseconds of timing::now_ns(); -1 until it has come so far. A command that
// is dropped, or fails before it runs, never begins.
struct CommandTimes {
  const int64_t issued_ns = timing::now_ns();
  std::atomic<int64_t> returned_ns{-1};  // the call that issued it has returned
  std::atomic<int64_t> began_ns{-1};     // of kernels, copies, fills
  std::atomic<int64_t> ended_ns{-1};     // written last: then all of them are known
};

namespace timing {

using Shared = std::shared_ptr<CommandTimes>;

// A command runs while it lives. Null: nobody wants to know.
class Running {
 public:
  explicit Running(CommandTimes* times) : times_(times) {
    if (times_ != nullptr) times_->began_ns = now_ns();
  }
  ~Running() {
    if (times_ != nullptr) times_->ended_ns = now_ns();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  CommandTimes* const times_;
};

// As the driver's methods of the same names, and the times are noted.
void submit(driver::Driver& driver, driver::Stream stream, const driver::Kernel& kernel, const Shared& times);
void copy(driver::Driver& driver, driver::Stream stream, void* destination, const void* source, size_t bytes,
          const Shared& times);
void fill(driver::Driver& driver, driver::Stream stream, void* destination, uint8_t value, size_t bytes,
          const Shared& times);

// For a driver that executes nothing: the command took no time.
void note_not_run(CommandTimes& times) noexcept;

}  // namespace timing

}  // namespace loom::runtime
