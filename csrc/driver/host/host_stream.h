// What the streams of a host-memory device share: the commands, and what happens when one runs. How they are
// queued and which thread runs them is up to the two kinds: worker_stream.h and chaos.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "driver/host/failure.h"
#include "driver/host/version.h"
#include "util/thread_local.h"

namespace loom::driver {

// A kernel that is released when it goes out of scope, if not before.
class OwnedKernel {
 public:
  OwnedKernel() = default;
  explicit OwnedKernel(const Kernel& kernel) : kernel_(kernel) {}
  OwnedKernel(OwnedKernel&& other) noexcept : kernel_(std::exchange(other.kernel_, Kernel{})) {}
  OwnedKernel& operator=(OwnedKernel&& other) noexcept {
    std::swap(kernel_, other.kernel_);
    return *this;
  }
  ~OwnedKernel() { release(); }
  void run(Stream stream) const { kernel_.run(kernel_.context, stream); }
  void release() noexcept {
    if (kernel_.release != nullptr) std::exchange(kernel_.release, nullptr)(kernel_.context);
  }

 private:
  Kernel kernel_{};
};

struct Command {
  enum class Kind { kKernel, kRecord, kWait };
  Kind kind;
  uint64_t submitted;       // Failure::now() when it was
  OwnedKernel kernel;       // of a kKernel
  Version::Shared version;  // of a kRecord: reaches it; of a kWait: waits for it
};

class HostStream {
 public:
  // `activity`: as in StreamOptions.
  explicit HostStream(StreamActivity* activity) : activity_(activity) {}
  virtual ~HostStream() = default;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  // The handle that stands for this stream in the contract, and back.
  Stream handle() noexcept { return reinterpret_cast<Stream>(this); }
  static HostStream* of(Stream handle) noexcept { return reinterpret_cast<HostStream*>(handle); }

  // Takes the kernel over, in any case.
  virtual void submit(const Kernel& kernel) = 0;
  // The point reached by what was submitted so far.
  virtual Version::Shared mark() = 0;
  // What is submitted later waits for `version`.
  virtual void wait_for(const Version::Shared& version) = 0;
  // Nothing is pending.
  virtual bool idle() noexcept = 0;
  virtual bool runs_in_place() noexcept = 0;
  // Waits for what is pending, and says which failures it depends on. Throws InvalidArgument in a kernel of
  // this stream, which would wait for itself.
  virtual Failures drain() = 0;

  // This thread runs a kernel of any stream: it must not wait for room, which may depend on that kernel.
  static bool in_kernel() noexcept { return num_running != 0; }

  // This thread runs a kernel of this stream.
  bool is_mine() const noexcept {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  // The kernel that this thread now runs on the stream is a copy.
  void mark_copy() noexcept {
    if (activity_ != nullptr) activity_->mark_copy();
  }

 protected:
  void refuse_own_kernel() const;

  // Called only by the thread that executes commands, without a lock.

  // Runs a command, or drops it; a kWait blocks. A failure is kept.
  void execute(Command& command);
  // Runs a kernel whose failure leaves this, and reaches what it has recorded on its own stream.
  void run_here(OwnedKernel& kernel);
  // The recorded and awaited versions of a running kernel's own calls on its own stream.
  Version::Shared mark_in_kernel();
  void wait_in_kernel(const Version::Shared& version) { nested_waits_.push_back(version); }

  std::atomic<std::thread::id> owner_{};
  Failures failures_;  // kept, of what was executed last
  // What a kernel that has ended wants the next command to wait for.
  std::vector<Version::Shared> nested_waits_;

 private:
  class Running;

  StreamActivity* const activity_;  // null: not recorded
  LOOM_FAST_ACCESS inline static constinit thread_local int num_running = 0;
  std::vector<Version::Shared> nested_records_;
};

}  // namespace loom::driver
