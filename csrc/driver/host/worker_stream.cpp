#include "driver/host/worker_stream.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

namespace loom::driver {

WorkerStream::Section::Section(WorkerStream& stream) : stream_(stream), lock_(stream.mutex_) {
  int state = stream.state_.load(std::memory_order_acquire);
  while (state != kManaged &&
         !stream.state_.compare_exchange_weak(state, kManaged, std::memory_order_acq_rel)) {
  }
  if (state != kManaged) stream.running_ = state == kInline;
}

WorkerStream::Section::~Section() {
  if (stream_.state_.load(std::memory_order_relaxed) == kManaged && !stream_.running_ &&
      stream_.queue_.empty() && stream_.failures_.empty()) {
    stream_.state_.store(kIdle, std::memory_order_release);
  }
}

WorkerStream::~WorkerStream() {
  if (!worker_.joinable()) return;
  ready_.store(kStop);
  ready_.notify_one();
  worker_.join();
}

// --- what callers do ---

void WorkerStream::submit(const Kernel& kernel) {
  OwnedKernel owned(kernel);
  const bool in_place = kernel.in_place || blocking_;
  int idle = kIdle;
  if ((runs_inline_ || in_place) && state_.compare_exchange_strong(idle, kInline, std::memory_order_acq_rel))
      [[likely]] {
    run_claimed(owned);
  } else {
    submit_managed(std::move(owned), in_place);
  }
}

void WorkerStream::submit_managed(OwnedKernel kernel, bool in_place) {
  if (is_mine()) {
    kernel.run(handle());
    return;
  }
  if (!in_place && !in_kernel()) wait_for_room();
  for (;;) {
    Failures failures;
    Version::Shared awaited;
    {
      const Section section(*this);
      settle();
      const bool is_free = !running_ && queue_.empty();
      if (is_free && !failures_.empty()) {
        if (!in_place) return;  // dropped
        failures = failures_;
      } else if (is_free && (runs_inline_ || in_place)) {
        state_.store(kInline, std::memory_order_relaxed);
      } else if (!in_place) {
        push(Command::Kind::kKernel, std::move(kernel), nullptr);
        return;
      } else if (!running_ && !has_work()) {
        awaited = queue_.front().version;
      } else {
        break;
      }
    }
    if (awaited != nullptr) {
      awaited->wait();
    } else if (!failures.empty()) {
      failures.raise();  // returns where another thread was faster: then this is submitted after the raise
    } else {
      run_claimed(kernel);
      return;
    }
  }
  submit_in_turn(kernel);
}

// The stream reaches `turn` and then waits for `done`; in between it belongs to this thread.
void WorkerStream::submit_in_turn(OwnedKernel& kernel) {
  struct Done {
    WorkerStream& stream;
    const Version::Shared version = std::make_shared<Version>();
    ~Done() {
      version->reach({});
      const Section section(stream);
      stream.settle();
    }
  };
  for (;;) {
    const auto turn = std::make_shared<Version>();
    const Done done{*this};
    {
      const Section section(*this);
      push(Command::Kind::kRecord, {}, turn);
      queue_.push_back({Command::Kind::kWait, Failure::now(), {}, done.version});
    }
    turn->wait();
    if (turn->failures().empty()) {
      run_here(kernel);
      return;
    }
    turn->failures().raise();
  }
}

void WorkerStream::run_claimed(OwnedKernel& kernel) {
  struct Leave {
    WorkerStream& stream;
    ~Leave() { stream.leave(); }
  } leave{*this};
  run_here(kernel);
}

void WorkerStream::leave() noexcept {
  int state = kInline;
  if (nested_waits_.empty() && state_.compare_exchange_strong(state, kIdle, std::memory_order_release))
      [[likely]] {
    return;
  }
  const Section section(*this);
  insert_nested_waits(0);
  running_ = false;
  settle();
  if (has_work()) make_ready();
}

Version::Shared WorkerStream::mark() {
  if (is_mine()) return mark_in_kernel();
  auto version = std::make_shared<Version>();
  if (state_.load(std::memory_order_acquire) == kIdle) {
    version->reach({});
    return version;
  }
  const Section section(*this);
  push(Command::Kind::kRecord, {}, version);
  return version;
}

void WorkerStream::wait_for(const Version::Shared& version) {
  if (version->clean()) return;
  const Section section(*this);
  if (is_mine()) {
    // It may be left to a worker when the kernel ends, which is no moment to find that there can be none.
    ensure_worker();
    wait_in_kernel(version);
  } else {
    queue_.push_back({Command::Kind::kWait, Failure::now(), {}, version});
  }
}

bool WorkerStream::idle() noexcept {
  if (state_.load(std::memory_order_acquire) == kIdle) return true;
  const Section section(*this);
  settle();
  return !running_ && queue_.empty();
}

bool WorkerStream::runs_in_place() noexcept {
  if (blocking_) return true;
  if (runs_inline_ && state_.load(std::memory_order_acquire) == kIdle) return true;
  if (is_mine()) return true;
  if (!runs_inline_) return false;
  const Section section(*this);
  settle();
  return !running_ && queue_.empty() && failures_.empty();
}

Failures WorkerStream::drain() {
  if (state_.load(std::memory_order_acquire) == kIdle) return {};
  refuse_own_kernel();
  Version::Shared awaited;
  for (bool is_last = false; !is_last;) {
    {
      const Section section(*this);
      settle();
      if (!running_ && queue_.empty()) return failures_;
      is_last = running_ || has_work();
      if (is_last) {
        awaited = std::make_shared<Version>();
        push(Command::Kind::kRecord, {}, awaited);
      } else {
        awaited = queue_.front().version;
      }
    }
    awaited->await();
  }
  // The thread that reached the version may hold the mutex still: the caller may end the stream.
  const std::lock_guard<SpinMutex> lock(mutex_);
  return awaited->failures();
}

void WorkerStream::wait_for_room() {
  for (;;) {
    const uint32_t taken = batches_taken_.load(std::memory_order_acquire);
    {
      const std::lock_guard<SpinMutex> lock(mutex_);
      if (queue_.size() < kMaxQueued || !has_work()) return;
    }
    batches_taken_.wait(taken, std::memory_order_acquire);
  }
}

// --- the queue ---

// Executes what needs no worker: points that are reached, waits that are over.
void WorkerStream::settle() noexcept {
  if (running_) return;
  size_t num_settled = 0;
  while (num_settled < queue_.size()) {
    Command& command = queue_[num_settled];
    const bool is_over = command.kind == Command::Kind::kRecord ||
                         (command.kind == Command::Kind::kWait && command.version->finished());
    if (!is_over) break;
    execute(command);
    ++num_settled;
    // A reached point may have given the stream to a kernel in another thread: what it waits for is its own.
    if (command.kind == Command::Kind::kWait) insert_nested_waits(num_settled);
  }
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(num_settled));
  // What is still queued may have been submitted before a failure was raised: it is for that to forget.
  if (queue_.empty()) failures_.forget(Failure::now());
}

void WorkerStream::insert_nested_waits(size_t position) {
  for (const Version::Shared& version : std::exchange(nested_waits_, {})) {
    queue_.insert(queue_.begin() + static_cast<std::ptrdiff_t>(position),
                  {Command::Kind::kWait, Failure::now(), {}, version});
  }
}

bool WorkerStream::has_work() const noexcept {
  return std::any_of(queue_.begin(), queue_.end(),
                     [](const Command& command) { return command.kind != Command::Kind::kWait; });
}

void WorkerStream::push(Command::Kind kind, OwnedKernel kernel, Version::Shared version) {
  // A point behind a command that runs in a caller's thread is reached by that thread.
  const bool needs_worker = kind == Command::Kind::kKernel || !queue_.empty();
  if (needs_worker) ensure_worker();
  queue_.push_back({kind, Failure::now(), std::move(kernel), std::move(version)});
  settle();
  if (!running_ && has_work()) make_ready();
}

void WorkerStream::ensure_worker() {
  if (worker_.joinable()) return;
  // Signals are for the program's own threads; fault signals must reach the thread that caused them.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  try {
    worker_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(std::string("cannot start the worker of a stream: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void WorkerStream::make_ready() noexcept {
  if (ready_.exchange(kReady) == kAsleep) ready_.notify_one();
}

// --- what the worker does ---

void WorkerStream::work() {
  pthread_setname_np(pthread_self(), "loom-stream");
  while (await_work()) {
    while (take_batch()) {
      for (Command& command : batch_) {
        execute(command);
        if (command.kind == Command::Kind::kRecord) continue;
        for (const Version::Shared& version : std::exchange(nested_waits_, {})) {
          Command wait{Command::Kind::kWait, Failure::now(), {}, version};
          execute(wait);
        }
      }
    }
  }
}

// False when it is to end.
bool WorkerStream::await_work() noexcept {
  if (!spin_until([&] { return ready_.load(std::memory_order_acquire) != kNothing; })) {
    int nothing = kNothing;
    ready_.compare_exchange_strong(nothing, kAsleep);
    ready_.wait(kAsleep);
  }
  return ready_.exchange(kNothing) != kStop;
}

// Ends the last batch and takes the next, if there is one: up to the last kernel and the last wait with a
// point behind it. Leftovers are settled once the stream no longer runs: a notified waiter sees the stream
// idle.
bool WorkerStream::take_batch() noexcept {
  const Section section(*this);
  if (!batch_.empty()) running_ = false;
  batch_.clear();
  settle();
  if (running_ || !has_work()) return false;
  size_t num_taken = queue_.size();
  while (queue_[num_taken - 1].kind == Command::Kind::kWait) --num_taken;
  while (queue_[num_taken - 1].kind == Command::Kind::kRecord) --num_taken;
  batch_.swap(queue_);
  const auto rest = batch_.begin() + static_cast<std::ptrdiff_t>(num_taken);
  queue_.assign(std::make_move_iterator(rest), std::make_move_iterator(batch_.end()));
  batch_.erase(rest, batch_.end());
  running_ = true;
  batches_taken_.fetch_add(1, std::memory_order_acq_rel);
  batches_taken_.notify_all();
  return true;
}

}  // namespace loom::driver
