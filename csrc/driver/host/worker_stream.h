// A stream with a worker: a thread of its own that runs what cannot run in the caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/host/host_stream.h"
#include "util/spin.h"

namespace loom::driver {

class WorkerStream final : public HostStream {
 public:
  // `blocking`: every kernel is in place.
  WorkerStream(const StreamOptions& options, bool blocking)
      : HostStream(options.activity),
        runs_inline_(options.inline_when_idle || blocking),
        blocking_(blocking) {}
  // Requires that nothing is pending and that no other thread uses the stream.
  ~WorkerStream() override;

  void submit(const Kernel& kernel) override;
  Version::Shared mark() override;
  void wait_for(const Version::Shared& version) override;
  bool idle() noexcept override;
  bool runs_in_place() noexcept override;
  Failures drain() override;

 private:
  // kIdle: nothing runs, nothing is queued, no failure is kept. kInline: a caller's thread runs a kernel, and
  // that is all. kManaged: the fields below say, under the mutex.
  enum : int { kIdle, kInline, kManaged };
  // Of the worker: whether it has something to do, and whether it must be woken for it.
  enum : int { kNothing, kReady, kAsleep, kStop };
  static constexpr size_t kMaxQueued = 4096;

  // Holds the mutex with the stream kManaged; afterwards it is kIdle again if there is nothing to manage.
  class Section {
   public:
    explicit Section(WorkerStream& stream);
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    WorkerStream& stream_;
    const std::lock_guard<SpinMutex> lock_;
  };

  void submit_managed(OwnedKernel kernel, bool in_place);
  void submit_in_turn(OwnedKernel& kernel);
  void run_claimed(OwnedKernel& kernel);
  void leave() noexcept;
  void wait_for_room();

  // In a Section only.
  void settle() noexcept;
  void insert_nested_waits(size_t position);
  bool has_work() const noexcept;
  void push(Command::Kind kind, OwnedKernel kernel, Version::Shared version);
  void ensure_worker();
  void make_ready() noexcept;

  void work();
  bool await_work() noexcept;
  bool take_batch() noexcept;

  const bool runs_inline_, blocking_;
  std::atomic<int> state_{kIdle};
  SpinMutex mutex_;
  bool running_ = false;  // a thread executes: the worker its batch, or a caller what it began as kInline
  std::vector<Command> queue_;
  std::atomic<uint32_t> batches_taken_{0};  // what submit() waits on for room
  std::atomic<int> ready_{kNothing};
  std::vector<Command> batch_;  // the worker's
  std::thread worker_;
};

}  // namespace loom::driver
