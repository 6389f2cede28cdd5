#include "cuda_cpp/time_limit.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cuda_cpp/runner.h"
#include "util/clock.h"

namespace loom::cuda_cpp {

namespace {

std::atomic<int64_t> limit_ns{0};

struct Watch {
  std::mutex mutex;
  std::vector<TimedRun*> running;
  bool has_thread = false;
};
// Leaked: its thread runs until the process ends.
Watch& known_watch() {
  static auto* instance = new Watch;
  return *instance;
}

// Returns after how long to look again.
std::chrono::nanoseconds stop_overdue() {
  // A thread of the host may have been where it cannot be stopped.
  constexpr std::chrono::milliseconds kAgain{10};
  constexpr std::chrono::seconds kRarely{1};
  Watch& watch = known_watch();
  const std::lock_guard<std::mutex> lock(watch.mutex);
  std::chrono::nanoseconds next = kRarely;
  const int64_t now = clock::host_ns();
  for (const TimedRun* each : watch.running) {
    const std::chrono::nanoseconds left{each->end_ns - now};
    if (left.count() <= 0) each->grid.stop();
    next = std::min(next, std::max<std::chrono::nanoseconds>(left, kAgain));
  }
  // A launch that begins meanwhile is seen soon enough.
  return std::min(next,
                  std::max<std::chrono::nanoseconds>(std::chrono::nanoseconds{time_limit_ns() / 4}, kAgain));
}

void begin_thread(Watch& watch) {
  static std::once_flag once;
  // Threads do not come along into a forked child.
  std::call_once(once, [] {
    pthread_atfork([] { known_watch().mutex.lock(); }, [] { known_watch().mutex.unlock(); },
                   [] {
                     known_watch().running.clear();
                     known_watch().has_thread = false;
                     known_watch().mutex.unlock();
                   });
  });
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([] {
      while (true) std::this_thread::sleep_for(stop_overdue());
    }).detach();
    watch.has_thread = true;
  } catch (const std::system_error&) {  // no thread can be had: the next launch tries again
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void set_time_limit_ns(int64_t limit) noexcept { limit_ns.store(limit, std::memory_order_relaxed); }
int64_t time_limit_ns() noexcept { return limit_ns.load(std::memory_order_relaxed); }

TimedRun::TimedRun(GridRun& grid)
    : grid(grid), end_ns(time_limit_ns() == 0 ? 0 : clock::host_ns() + time_limit_ns()) {
  if (end_ns == 0) return;
  Watch& watch = known_watch();
  const std::lock_guard<std::mutex> lock(watch.mutex);
  watch.running.push_back(this);
  if (!watch.has_thread) begin_thread(watch);
}

TimedRun::~TimedRun() {
  if (end_ns == 0) return;
  Watch& watch = known_watch();
  const std::lock_guard<std::mutex> lock(watch.mutex);
  std::erase(watch.running, this);
}

}  // namespace loom::cuda_cpp
