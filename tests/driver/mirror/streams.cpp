#include "streams.h"

#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

namespace loom::mirror {

using driver::Event;
using driver::Kernel;
using driver::OnFailure;
using driver::Stream;

namespace {

template <typename Handle>
void check_not_null(Handle handle, const char* method, const char* what) {
  if (handle == nullptr) throw InvalidArgument(std::string(method) + ": " + what + " must not be null");
}

MirrorStream& of(Stream stream, const char* method) {
  check_not_null(stream, method, "stream");
  return *reinterpret_cast<MirrorStream*>(stream);
}

MirrorEvent& of(Event event, const char* method) {
  check_not_null(event, method, "event");
  return *reinterpret_cast<MirrorEvent*>(event);
}

Stream handle_of(MirrorStream& stream) { return reinterpret_cast<Stream>(&stream); }

// Releases a kernel at the end of the scope: after the lock, if that was taken later.
class Released {
 public:
  explicit Released(const Kernel& kernel) : kernel_(kernel) {}
  ~Released() {
    if (kernel_.release != nullptr) kernel_.release(kernel_.context);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  void pass_on() { kernel_.release = nullptr; }

 private:
  Kernel kernel_;
};

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown failure";
  }
}

}  // namespace

Streams::Streams(bool is_blocking, const driver::Program& program)
    : is_blocking_(is_blocking), program_(program), process_(getpid()) {}

Streams::~Streams() {
  if (process_ != getpid()) return;
  while (!streams_.empty()) destroy(handle_of(**streams_.begin()));
}

Stream Streams::create(driver::StreamOptions options) {
  auto* const stream = new MirrorStream{options.inline_when_idle || is_blocking_};
  const Lock lock(mutex_);
  streams_.insert(stream);
  return handle_of(*stream);
}

void Streams::destroy(Stream handle) {
  if (handle == nullptr) return;
  MirrorStream& stream = of(handle, "destroy_stream");
  {
    Lock lock(mutex_);
    advance();
    changed_.wait(lock, [&] { return is_free(stream); });
    streams_.erase(&stream);
    stream.is_ending = true;
  }
  changed_.notify_all();
  if (stream.worker.joinable()) stream.worker.join();
  delete &stream;
}

bool Streams::is_mine(const MirrorStream& stream) const {
  return stream.is_running && stream.runner == std::this_thread::get_id();
}

void Streams::reach(Mark& mark) const {
  mark.is_failed = has_failed_;
  mark.time_ns = program_.now_ns();
  mark.is_reached = true;
}

// Passes what needs no thread: points that are reached, and waits that are over, one of which may follow from
// the other.
void Streams::advance() {
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (MirrorStream* const stream : streams_) {
      while (!is_free(*stream) && !stream->is_running) {
        const Item& item = stream->queue.front();
        if (item.kind == Item::Kind::kReach) {
          reach(*item.mark);
        } else if (item.kind != Item::Kind::kWait || !item.mark->is_reached) {
          break;
        }
        stream->queue.pop_front();
        has_changed = true;
      }
    }
  }
  changed_.notify_all();
}

void Streams::end_run(MirrorStream& stream) {
  for (const MarkRef& mark : std::exchange(stream.nested, {})) reach(*mark);
  for (MarkRef& mark : std::exchange(stream.nested_waits, {})) {
    stream.queue.push_front({Item::Kind::kWait, {}, std::move(mark)});
  }
  stream.is_running = false;
  stream.runner = {};
  advance();
}

// The stream is free for it. What the kernel throws leaves this, unless it is kept.
void Streams::run(Lock& lock, MirrorStream& stream, const Kernel& kernel, bool keeps_failure) {
  stream.is_running = true;
  stream.runner = std::this_thread::get_id();
  std::exception_ptr failure;
  std::string reason;
  lock.unlock();
  try {
    kernel.run(kernel.context, handle_of(stream));
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended, as Python does at its own end
  } catch (...) {
    failure = std::current_exception();
    if (keeps_failure) reason = text_of_current_exception();
  }
  {
    const Released released(kernel);
  }
  lock.lock();
  if (failure != nullptr && keeps_failure && !has_failed_) {
    has_failed_ = true;
    failure_ = std::exchange(failure, nullptr);
    reason_ = std::move(reason);
  }
  end_run(stream);
  if (failure != nullptr && !keeps_failure) std::rethrow_exception(failure);
}

void Streams::check_usable() const {
  if (!is_raised_) return;
  throw Unusable("the device cannot be used until the process ends, since a kernel failed: " + reason_);
}

void Streams::raise() {
  check_usable();
  is_raised_ = true;
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Streams::await(Lock& lock, const Mark& mark) {
  constexpr std::chrono::milliseconds kSlice{50};
  while (!changed_.wait_for(lock, kSlice, [&] { return mark.is_reached; })) {
    lock.unlock();
    program_.check_wait();
    lock.lock();
  }
}

// Returns with nothing before the caller, and the stream not running.
void Streams::await_turn(Lock& lock, MirrorStream& stream) {
  if (is_free(stream)) return;
  const auto turn = std::make_shared<Mark>();
  stream.queue.push_back({Item::Kind::kTurn, {}, turn});
  advance();
  changed_.wait(
      lock, [&] { return !stream.is_running && !stream.queue.empty() && stream.queue.front().mark == turn; });
  stream.queue.pop_front();
}

bool Streams::runs_in_place(Stream handle) noexcept {
  if (handle == nullptr) return false;
  MirrorStream& stream = of(handle, "runs_in_place");
  const Lock lock(mutex_);
  if (is_blocking_ || is_mine(stream)) return true;
  advance();
  return stream.is_inline && is_free(stream) && !has_failed_;
}

void Streams::submit(Stream handle, const Kernel& kernel) {
  Released released(kernel);
  MirrorStream& stream = of(handle, "submit");
  if (kernel.run == nullptr) throw InvalidArgument("submit: the kernel's run must not be null");
  Lock lock(mutex_);
  if (is_mine(stream)) {
    lock.unlock();
    kernel.run(kernel.context, handle);
    return;
  }
  check_usable();
  advance();
  const bool in_place = kernel.in_place || is_blocking_;
  if (in_place || (stream.is_inline && is_free(stream) && !has_failed_)) {
    await_turn(lock, stream);
    if (has_failed_) {
      advance();
      raise();
    }
    released.pass_on();
    return run(lock, stream, kernel, /*keeps_failure=*/false);
  }
  if (has_failed_) return;  // dropped
  start_worker(stream);
  released.pass_on();
  stream.queue.push_back({Item::Kind::kKernel, kernel, {}});
  changed_.notify_all();
}

void Streams::start_worker(MirrorStream& stream) {
  if (stream.worker.joinable()) return;
  // Signals are for the program's own threads; those of a fault must reach whoever caused it.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  try {
    stream.worker = std::thread([this, &stream] { work(stream); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(std::string("cannot start the worker of a stream: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Streams::work(MirrorStream& stream) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return stream.is_ending || (!stream.is_running && !stream.queue.empty() &&
                                  stream.queue.front().kind == Item::Kind::kKernel);
    });
    if (stream.is_ending) return;
    const Kernel kernel = stream.queue.front().kernel;
    stream.queue.pop_front();
    if (!has_failed_) {
      run(lock, stream, kernel, /*keeps_failure=*/true);
      continue;
    }
    stream.is_running = true;
    lock.unlock();
    {
      const Released dropped(kernel);
    }
    lock.lock();
    end_run(stream);
  }
}

bool Streams::is_idle(Stream handle) {
  MirrorStream& stream = of(handle, "query_stream");
  const Lock lock(mutex_);
  advance();
  return is_free(stream);
}

void Streams::synchronize(Stream handle, OnFailure on_failure) {
  MirrorStream& stream = of(handle, "synchronize_stream");
  Lock lock(mutex_);
  if (is_mine(stream)) throw InvalidArgument("a kernel must not wait for the stream that runs it");
  const auto end = std::make_shared<Mark>();
  stream.queue.push_back({Item::Kind::kReach, {}, end});
  advance();
  await(lock, *end);
  if (end->is_failed && on_failure == OnFailure::kRaise) raise();
}

Event Streams::create_event(driver::EventOptions options) {
  return reinterpret_cast<Event>(new MirrorEvent{options.timing});
}

void Streams::destroy_event(Event event) { delete reinterpret_cast<MirrorEvent*>(event); }

void Streams::record(Event event, Stream handle) {
  MirrorEvent& what = of(event, "record_event");
  MirrorStream& stream = of(handle, "record_event");
  const auto mark = std::make_shared<Mark>();
  const Lock lock(mutex_);
  what.last = mark;
  if (is_mine(stream)) {
    stream.nested.push_back(mark);
    return;
  }
  stream.queue.push_back({Item::Kind::kReach, {}, mark});
  advance();
}

void Streams::wait(Stream handle, Event event) {
  MirrorStream& stream = of(handle, "wait_event");
  const MirrorEvent& what = of(event, "wait_event");
  const Lock lock(mutex_);
  if (what.last == nullptr || what.last->is_reached) return;
  if (is_mine(stream)) {
    stream.nested_waits.push_back(what.last);
  } else {
    stream.queue.push_back({Item::Kind::kWait, {}, what.last});
  }
}

bool Streams::is_finished(Event event) {
  const MirrorEvent& what = of(event, "query_event");
  const Lock lock(mutex_);
  return what.last == nullptr || what.last->is_reached;
}

void Streams::synchronize(Event event) {
  const MirrorEvent& what = of(event, "synchronize_event");
  Lock lock(mutex_);
  const MarkRef mark = what.last;
  if (mark != nullptr) await(lock, *mark);
  if (mark != nullptr && mark->is_failed) raise();
  check_usable();
}

int64_t Streams::elapsed_ns(Event start, Event end) {
  const Lock lock(mutex_);
  const auto time_of = [](Event event, const std::string& name) {
    check_not_null(event, "elapsed_ns", name.c_str());
    const MirrorEvent& what = of(event, "elapsed_ns");
    const std::string subject = "elapsed_ns: the " + name + " event ";
    if (!what.is_timed) throw InvalidArgument(subject + "was created without timing");
    if (what.last == nullptr) throw InvalidArgument(subject + "was never recorded");
    if (!what.last->is_reached) throw NotReady(subject + "has not finished");
    if (what.last->is_failed) throw NotReady(subject + "was recorded behind a failure");
    return what.last->time_ns;
  };
  const int64_t start_ns = time_of(start, "start");
  return time_of(end, "end") - start_ns;
}

}  // namespace loom::mirror
