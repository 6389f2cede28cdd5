// How long a launch may take. A loop of a kernel calls nothing that could look at the clock, so that a thread
// of its own watches the launches that run, and stops those that have taken too long.
#pragma once

#include <cstdint>

namespace loom::cuda_cpp {

class GridRun;

// What is said of a program or a block that is stopped.
constexpr char kOverLimit[] = "has not ended within the limit for a launch (TORCH_LOOM_KERNEL_TIMEOUT)";

// Nanoseconds; 0: as long as it likes. Of any kernel of a program's own.
void set_time_limit_ns(int64_t limit) noexcept;
int64_t time_limit_ns() noexcept;

// Exists while a launch runs.
class TimedRun {
 public:
  explicit TimedRun(GridRun& grid);
  ~TimedRun();
  TimedRun(const TimedRun&) = delete;
  TimedRun& operator=(const TimedRun&) = delete;

  GridRun& grid;
  const int64_t end_ns;  // 0: none
};

}  // namespace loom::cuda_cpp
