// Points in streams, and the events that name them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/driver.h"
#include "driver/host/failure.h"

namespace loom::driver {

// A point in a stream: finished when the stream has reached it. It remembers the failures that the stream's
// work up to it depends on.
class Version {
 public:
  using Shared = std::shared_ptr<Version>;

  // Called once.
  void reach(Failures failures) noexcept;
  bool finished() const noexcept { return state_.load(std::memory_order_acquire) == kReached; }
  // Finished, and waiting for it changes nothing.
  bool clean() const noexcept { return finished() && failures_.empty(); }
  void wait() const noexcept;
  // The same for a thread of the program's: what check_wait() throws leaves it.
  void await() const;
  // Of a finished version.
  const Failures& failures() const noexcept { return failures_; }
  int64_t time_ns() const noexcept { return time_ns_; }

 private:
  enum : int32_t { kPending, kAwaited, kReached };
  void sleep(std::chrono::nanoseconds longest) const noexcept;

  mutable std::atomic<int32_t> state_{kPending};
  int64_t time_ns_ = 0;
  Failures failures_;
};

class HostEvent {
 public:
  explicit HostEvent(EventOptions options) : options(options) {}
  Event handle() noexcept { return reinterpret_cast<Event>(this); }
  static HostEvent* of(Event handle) noexcept { return reinterpret_cast<HostEvent*>(handle); }

  // Null when never recorded.
  Version::Shared latest() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return latest_;
  }
  void record(Version::Shared version) {
    std::lock_guard<std::mutex> lock(mutex_);
    latest_.swap(version);
  }

  const EventOptions options;

 private:
  mutable std::mutex mutex_;
  Version::Shared latest_;
};

}  // namespace loom::driver
