#include "driver/host/chaos.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "util/waiting.h"

namespace loom::driver {

namespace {

constexpr uint64_t kStepsPerChange = 12;  // on average

}  // namespace

HostStream* Chaos::create_stream(StreamActivity* activity) { return new ChaosStream(*this, activity); }

void Chaos::restart(uint64_t seed) {
  const Lock lock(mutex_);
  for (const ChaosStream* stream : streams_) {
    if (stream->running_ || !stream->queue_.empty()) {
      throw InvalidArgument(
          "a stream has work that has not run: synchronize the devices before the seed changes");
    }
  }
  for (ChaosStream* stream : std::exchange(streams_, {})) stream->is_used_ = false;
  random_.seed(seed);
}

void Chaos::wait(const Version& version) {
  Lock lock(mutex_);
  run_until(lock, [&] { return version.finished(); });
}

void Chaos::ask() {
  Lock lock(mutex_);
  if (HostStream::in_kernel() || draw(2) == 0) return;
  const std::vector<ChaosStream*> ready = ready_streams(/*lazy_too=*/true);
  if (!ready.empty()) step(lock, *ready[draw(ready.size())]);
}

void Chaos::change_tempers() {
  if (!streams_.empty() && draw(kStepsPerChange) == 0) {
    streams_[draw(streams_.size())]->temper_ = draw_temper();
  }
}

std::vector<ChaosStream*> Chaos::ready_streams(bool lazy_too) {
  std::vector<ChaosStream*> ready;
  for (ChaosStream* stream : streams_) {
    if (stream->is_ready() && (lazy_too || stream->temper_ != Temper::kLazy)) ready.push_back(stream);
  }
  return ready;
}

void Chaos::run_some(Lock& lock) {
  // What a kernel submits elsewhere stays there until the kernel has ended.
  if (HostStream::in_kernel()) return;
  change_tempers();
  for (uint64_t fair_steps = draw(4);;) {
    std::vector<ChaosStream*> ready = ready_streams(/*lazy_too=*/false);
    if (fair_steps == 0) {
      const auto is_fair = [](const ChaosStream* stream) { return stream->temper_ == Temper::kFair; };
      ready.erase(std::remove_if(ready.begin(), ready.end(), is_fair), ready.end());
    }
    if (ready.empty()) return;
    ChaosStream* const stream = ready[draw(ready.size())];
    if (stream->temper_ == Temper::kFair) --fair_steps;
    step(lock, *stream);
  }
}

void Chaos::run_until(Lock& lock, const std::function<bool()>& done) {
  using Time = std::chrono::steady_clock;
  auto next_check = Time::now() + kWaitSlice;
  // Other streams run too while a thread waits, not only those that it needs.
  while (!done()) {
    if (const auto now = Time::now(); now >= next_check && !HostStream::in_kernel()) {
      next_check = now + kWaitSlice;
      lock.unlock();
      check_wait();
      lock.lock();
      continue;
    }
    std::vector<ChaosStream*> ready = ready_streams(/*lazy_too=*/false);
    if (ready.empty()) ready = ready_streams(/*lazy_too=*/true);
    if (ready.empty()) {
      changed_.wait_for(lock, kWaitSlice);  // other threads run what this thread waits for
      continue;
    }
    step(lock, *ready[draw(ready.size())]);
    change_tempers();
  }
}

void Chaos::step(Lock& lock, ChaosStream& stream) {
  Command command = std::move(stream.queue_.front());
  stream.queue_.pop_front();
  stream.running_ = true;
  lock.unlock();
  stream.execute(command);
  lock.lock();
  // A reached point may have given the stream to a kernel in another thread: what it waits for is its own.
  if (command.kind != Command::Kind::kRecord) {
    for (Version::Shared& version : std::exchange(stream.nested_waits_, {})) {
      stream.queue_.push_front({Command::Kind::kWait, Failure::now(), {}, std::move(version)});
    }
  }
  stream.running_ = false;
  changed_.notify_all();
}

ChaosStream::~ChaosStream() {
  const Chaos::Lock lock(chaos_.mutex_);
  if (is_used_) chaos_.streams_.erase(std::find(chaos_.streams_.begin(), chaos_.streams_.end(), this));
}

bool ChaosStream::is_ready() const noexcept {
  if (running_ || queue_.empty()) return false;
  return queue_.front().kind != Command::Kind::kWait || queue_.front().version->finished();
}

void ChaosStream::push(Command::Kind kind, OwnedKernel kernel, Version::Shared version) {
  if (!is_used_) {
    is_used_ = true;
    temper_ = chaos_.draw_temper();
    chaos_.streams_.push_back(this);
  }
  queue_.push_back({kind, Failure::now(), std::move(kernel), std::move(version)});
  chaos_.changed_.notify_all();
}

void ChaosStream::submit(const Kernel& kernel) {
  OwnedKernel owned(kernel);
  if (is_mine()) {
    owned.run(handle());
  } else if (kernel.in_place) {
    submit_in_turn(owned);
  } else {
    Chaos::Lock lock(chaos_.mutex_);
    if (!in_kernel()) chaos_.run_until(lock, [&] { return queue_.size() < kMaxQueued; });
    push(Command::Kind::kKernel, std::move(owned), nullptr);
    chaos_.run_some(lock);
  }
}

// The stream reaches `turn` and then waits for `done`; in between it belongs to this thread.
void ChaosStream::submit_in_turn(OwnedKernel& kernel) {
  struct Done {
    Chaos& chaos;
    const Version::Shared version = std::make_shared<Version>();
    ~Done() {
      const Chaos::Lock lock(chaos.mutex_);
      version->reach({});
      chaos.changed_.notify_all();
    }
  };
  for (;;) {
    const auto turn = std::make_shared<Version>();
    const Done done{chaos_};
    {
      Chaos::Lock lock(chaos_.mutex_);
      push(Command::Kind::kRecord, {}, turn);
      push(Command::Kind::kWait, {}, done.version);
      // The thread that reached it must be done with the stream's fields, too.
      chaos_.run_until(lock, [&] { return turn->finished() && !running_; });
    }
    if (turn->failures().empty()) {
      run_here(kernel);
      return;
    }
    turn->failures().raise();
  }
}

Version::Shared ChaosStream::mark() {
  if (is_mine()) return mark_in_kernel();
  const auto version = std::make_shared<Version>();
  Chaos::Lock lock(chaos_.mutex_);
  if (!running_ && queue_.empty() && failures_.empty()) {
    version->reach({});
  } else {
    push(Command::Kind::kRecord, {}, version);
  }
  return version;
}

void ChaosStream::wait_for(const Version::Shared& version) {
  if (version->clean()) return;
  if (is_mine()) {
    wait_in_kernel(version);
    return;
  }
  const Chaos::Lock lock(chaos_.mutex_);
  push(Command::Kind::kWait, {}, version);
}

bool ChaosStream::idle() noexcept {
  const Chaos::Lock lock(chaos_.mutex_);
  return !running_ && std::all_of(queue_.begin(), queue_.end(), [](const Command& command) {
    return command.kind == Command::Kind::kWait && command.version->finished();
  });
}

Failures ChaosStream::drain() {
  refuse_own_kernel();
  auto version = std::make_shared<Version>();
  Chaos::Lock lock(chaos_.mutex_);
  // To wait for nothing must not be a use: it would have a say in the order.
  if (!is_used_ && failures_.empty()) return {};
  push(Command::Kind::kRecord, {}, version);
  chaos_.run_until(lock, [&] { return version->finished() && !running_; });
  return version->failures();
}

}  // namespace loom::driver
