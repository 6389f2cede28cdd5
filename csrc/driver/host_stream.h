// Streams and events without workers: a command runs in the thread that submits it, one at a time on a
// stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver/driver.h"

namespace loom::driver {

// A point in a stream: finished when the stream has reached it and all that the stream was to wait for is
// finished.
class Version {
 public:
  using Shared = std::shared_ptr<Version>;

  explicit Version(std::vector<Shared> after) : after_(std::move(after)) {}
  void reach() noexcept;
  bool finished() const noexcept;
  void wait() const noexcept;
  // When it finished. Call it on a finished version only.
  int64_t time_ns() const noexcept;

 private:
  static constexpr int64_t kPending = -1;
  std::atomic<int64_t> reached_ns_{kPending};
  const std::vector<Shared> after_;
};

struct StreamState {
 public:
  // Runs `command` after everything submitted before; waits in this thread while another one runs a command
  // here. What a command itself submits to its own stream is part of that command.
  template <typename F>
  void run(F&& command) {
    const Turn turn(*this);
    command();
  }
  // The point reached by what was submitted so far.
  Version::Shared mark();
  // The next command waits for `version`.
  void wait_for(const Version::Shared& version);
  bool idle() noexcept;
  // Throws InvalidArgument in a command of this stream, which would wait for itself.
  void synchronize();

 private:
  // kAttended: busy, and whoever runs has recorded versions to reach or threads to wake.
  // kHeld: nothing runs, but the next command has versions to wait for.
  enum : int { kIdle, kBusy, kAttended, kHeld };

  class Turn {
   public:
    explicit Turn(StreamState& stream) : stream_(stream) {
      int idle = kIdle;
      if (stream.state_.compare_exchange_strong(idle, kBusy, std::memory_order_acquire)) [[likely]] {
        stream.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
      } else {
        nested_ = !stream.enter();
      }
    }
    ~Turn() {
      if (nested_) return;
      stream_.owner_.store({}, std::memory_order_relaxed);
      int busy = kBusy;
      if (!stream_.state_.compare_exchange_strong(busy, kIdle, std::memory_order_release)) stream_.leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StreamState& stream_;
    bool nested_ = false;
  };

  bool enter();  // false: this thread runs a command of this stream already
  void leave() noexcept;
  bool attend() noexcept;  // true: a command runs, and calls leave() at its end
  bool is_mine() const noexcept {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  std::atomic<int> state_{kIdle};
  std::atomic<std::thread::id> owner_{};
  // Guards what follows, and every change of state but those between kIdle and kBusy or from kBusy to
  // kAttended.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Version::Shared> recorded_;  // reached when the running command ends
  std::vector<Version::Shared> waits_;     // of the next command
};

struct EventState {
 public:
  explicit EventState(EventOptions options) : options(options) {}
  // Null when never recorded.
  Version::Shared latest() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return latest_;
  }
  void record(Version::Shared version) {
    std::lock_guard<std::mutex> lock(mutex_);
    latest_ = std::move(version);
  }

  const EventOptions options;

 private:
  mutable std::mutex mutex_;
  Version::Shared latest_;
};

}  // namespace loom::driver
