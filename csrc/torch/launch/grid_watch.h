// The sanitizer of kernels that run as a grid of programs: races between programs, reads of memory that
// nothing has written. Kernels that torch_loom/kernels compiled for it report each access.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel_checks/races.h"
#include "kernel_checks/touched.h"
#include "kernel_checks/unwritten.h"

namespace loom::glue {

// As in torch_loom/kernels/emission/cpp/kernel.h.
struct GridSite {
  const char *what, *place, *argument;
  int number;
};
enum class GridAccess : int32_t { kRead, kWrite, kAtomic, kLock, kVolatileRead };
struct GridWatcher {
  // Called before the access; `value`: what is written. Returns what is wrong, or null.
  const char* (*access)(GridWatcher* self, int64_t program, const GridSite* site, int64_t address,
                        int64_t bytes, int32_t kind, const void* value);
};

// Watches one run of a launch.
class LaunchWatcher : public GridWatcher {
 public:
  // `begins`: where the memory of each argument begins that is an address; `shapes`: its tensor, in words.
  LaunchWatcher(const std::array<int64_t, 3>& grid, std::vector<int64_t> begins,
                const std::vector<std::string>& shapes);

  // What the launch has read and written of the memory of each argument, and behind these elsewhere.
  std::vector<std::vector<kernel_checks::Piece>> touched();

 private:
  const char* look(const kernel_checks::Access& access, const GridSite& site, uintptr_t address,
                   uint32_t bytes, GridAccess kind, const void* value);
  std::string program_text(int64_t program) const;
  std::string begin_of(const kernel_checks::Access& access, const GridSite& site, const char* does,
                       uintptr_t address, uint32_t bytes) const;

  const std::array<int64_t, 3> grid_;
  const std::vector<int64_t> begins_;
  const std::vector<std::string>& shapes_;
  kernel_checks::LaunchRaces races_;
  std::vector<kernel_checks::TouchedMemory> touched_;
  std::string text_;
};

// From now on allocations and what writes to them are followed.
void watch_grids();
extern std::atomic<bool> are_grids_watched;
// What has been allocated and not written since, by addresses of the engine. For any thread.
kernel_checks::UnwrittenMemory& unwritten_memory();

class WatchedIssue;

// The watched launches of a thread: that which it issues, and where the one that it runs says what it uses.
struct WatchedLaunches {
  const WatchedIssue* issued = nullptr;
  std::vector<kernel_checks::Piece>* running = nullptr;  // null: it is not to say it
};

// Of a launch that is issued while it lives in this thread, the kernel itself says what it uses.
class WatchedIssue {
 public:
  // What it has used, by addresses of the device, once it has run.
  using Accesses = std::vector<kernel_checks::Piece>;

  WatchedIssue();
  ~WatchedIssue();
  WatchedIssue(const WatchedIssue&) = delete;
  WatchedIssue& operator=(const WatchedIssue&) = delete;

  const std::shared_ptr<Accesses>& accesses() const noexcept { return accesses_; }
  // Of the launch that this thread is issuing; null: no such launch.
  static const Accesses* of_this_thread() noexcept;
  // Of the launch that this thread is running; null: it is not watched.
  static Accesses* of_running_launch() noexcept;

 private:
  const std::shared_ptr<Accesses> accesses_ = std::make_shared<Accesses>();
  WatchedLaunches own_;
  const WatchedLaunches* const before_;
};

// While it lives, this thread runs a launch that says there what it uses.
class WatchedRun {
 public:
  explicit WatchedRun(WatchedIssue::Accesses* accesses);
  ~WatchedRun();
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

 private:
  WatchedLaunches own_;
  const WatchedLaunches* const before_;
};

}  // namespace loom::glue
