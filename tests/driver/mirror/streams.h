// The mirror driver's streams and events: one lock, a queue and at most one worker a stream, and one failure
// that ends everything.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver/driver.h"

namespace loom::mirror {

// Where a stream was when an event was recorded.
struct Mark {
  bool is_reached = false;
  bool is_failed = false;  // behind the failure
  int64_t time_ns = 0;
};
using MarkRef = std::shared_ptr<Mark>;

struct Item {
  enum class Kind { kKernel, kReach, kWait, kTurn };
  Kind kind;
  driver::Kernel kernel{};
  MarkRef mark{};  // reached, waited for, or whose turn it is
};

struct MirrorStream {
  const bool is_inline;
  std::deque<Item> queue{};
  bool is_running = false;
  std::thread::id runner{};             // of the kernel that runs
  std::vector<MarkRef> nested{};        // recorded by the kernel that runs on its own stream
  std::vector<MarkRef> nested_waits{};  // what comes after that kernel waits for these
  bool is_ending = false;
  std::thread worker{};
};

struct MirrorEvent {
  const bool is_timed;
  MarkRef last{};
};

class Streams {
 public:
  Streams(bool is_blocking, const driver::Program& program);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  driver::Stream create(driver::StreamOptions options);
  void destroy(driver::Stream stream);
  bool is_idle(driver::Stream stream);
  void synchronize(driver::Stream stream, driver::OnFailure on_failure);
  bool runs_in_place(driver::Stream stream) noexcept;
  // Takes the kernel over, in any case.
  void submit(driver::Stream stream, const driver::Kernel& kernel);

  driver::Event create_event(driver::EventOptions options);
  void destroy_event(driver::Event event);
  void record(driver::Event event, driver::Stream stream);
  void wait(driver::Stream stream, driver::Event event);
  bool is_finished(driver::Event event);
  void synchronize(driver::Event event);
  int64_t elapsed_ns(driver::Event start, driver::Event end);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // All of these with the lock held; run() and wait_for() let go of it meanwhile.
  bool is_mine(const MirrorStream& stream) const;
  bool is_free(const MirrorStream& stream) const { return !stream.is_running && stream.queue.empty(); }
  void advance();
  void reach(Mark& mark) const;
  void run(Lock& lock, MirrorStream& stream, const driver::Kernel& kernel, bool keeps_failure);
  void end_run(MirrorStream& stream);
  void await_turn(Lock& lock, MirrorStream& stream);
  void await(Lock& lock, const Mark& mark);
  void start_worker(MirrorStream& stream);
  void work(MirrorStream& stream);
  void check_usable() const;
  [[noreturn]] void raise();

  const bool is_blocking_;
  const driver::Program& program_;
  const int process_;  // that made it: a forked child has none of the workers
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<MirrorStream*> streams_;
  // The failure that ended everything: null before it, and again once it was raised.
  bool has_failed_ = false, is_raised_ = false;
  std::exception_ptr failure_;
  std::string reason_;
};

}  // namespace loom::mirror
