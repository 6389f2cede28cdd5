#include "driver/host_stream.h"

#include <algorithm>
#include <chrono>

namespace loom::driver {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Version::reach() noexcept {
  reached_ns_.store(now_ns(), std::memory_order_release);
  reached_ns_.notify_all();
}

bool Version::finished() const noexcept {
  return reached_ns_.load(std::memory_order_acquire) != kPending &&
         std::all_of(after_.begin(), after_.end(), [](const Shared& version) { return version->finished(); });
}

void Version::wait() const noexcept {
  reached_ns_.wait(kPending, std::memory_order_acquire);
  for (const Shared& version : after_) version->wait();
}

int64_t Version::time_ns() const noexcept {
  int64_t time = reached_ns_.load(std::memory_order_acquire);
  for (const Shared& version : after_) time = std::max(time, version->time_ns());
  return time;
}

bool StreamState::attend() noexcept {
  int state = kBusy;
  return state_.compare_exchange_strong(state, kAttended) || state == kAttended;
}

bool StreamState::enter() {
  if (is_mine()) return false;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    int state = kIdle;
    if (state_.compare_exchange_strong(state, kBusy, std::memory_order_acquire)) break;
    if (state == kHeld) {
      state_.store(kBusy);
      break;
    }
    if (attend()) changed_.wait(lock);
  }
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  const std::vector<Version::Shared> waits = std::exchange(waits_, {});
  lock.unlock();
  for (const Version::Shared& version : waits) version->wait();
  return true;
}

void StreamState::leave() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Version::Shared& version : recorded_) version->reach();
  recorded_.clear();
  state_.store(waits_.empty() ? kIdle : kHeld, std::memory_order_release);
  changed_.notify_all();
}

Version::Shared StreamState::mark() {
  std::lock_guard<std::mutex> lock(mutex_);
  // What has finished is forgotten, so that versions do not keep all earlier ones alive.
  std::vector<Version::Shared> after;
  for (const Version::Shared& version : waits_) {
    if (!version->finished()) after.push_back(version);
  }
  auto version = std::make_shared<Version>(std::move(after));
  if (attend()) {
    recorded_.push_back(version);
  } else {
    version->reach();
  }
  return version;
}

void StreamState::wait_for(const Version::Shared& version) {
  if (version->finished()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  waits_.push_back(version);
  for (;;) {
    int state = kIdle;
    if (state_.compare_exchange_strong(state, kHeld) || state == kHeld || attend()) return;
  }
}

bool StreamState::idle() noexcept {
  if (state_.load(std::memory_order_acquire) == kIdle) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  const int state = state_.load(std::memory_order_acquire);
  return state == kIdle ||
         (state == kHeld && std::all_of(waits_.begin(), waits_.end(),
                                        [](const Version::Shared& version) { return version->finished(); }));
}

void StreamState::synchronize() {
  if (is_mine()) throw InvalidArgument("a kernel must not wait for the stream that runs it");
  mark()->wait();
  // The thread that reached the version holds the mutex until it is done with this object.
  std::lock_guard<std::mutex> lock(mutex_);
}

}  // namespace loom::driver
