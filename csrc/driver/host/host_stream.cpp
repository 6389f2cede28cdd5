#include "driver/host/host_stream.h"

#include <cxxabi.h>

#include <exception>
#include <memory>

#include "driver/host/gate.h"
#include "util/clock.h"

namespace loom::driver {

// Marks that this thread runs a kernel of the stream.
class HostStream::Running {
 public:
  explicit Running(HostStream& stream) : stream_(stream) {
    if (num_running == 0) gate::enter();
    ++num_running;
    stream.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (stream.activity_ != nullptr) stream.activity_->begin(clock::host_ticks());
  }
  ~Running() {
    if (stream_.activity_ != nullptr) stream_.activity_->end(clock::host_ticks());
    stream_.owner_.store({}, std::memory_order_relaxed);
    if (--num_running == 0) gate::leave();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  HostStream& stream_;
};

void HostStream::refuse_own_kernel() const {
  if (is_mine()) throw InvalidArgument("a kernel must not wait for the stream that runs it");
}

void HostStream::execute(Command& command) {
  switch (command.kind) {
    case Command::Kind::kKernel:
      if (!failures_.empty()) failures_.forget(command.submitted);
      if (failures_.empty()) {
        try {
          const Running running(*this);
          command.kernel.run(handle());
        } catch (const abi::__forced_unwind&) {
          throw;  // no failure: the kernel's thread is being ended, as Python does at its own end
        } catch (...) {
          failures_.add(std::make_shared<Failure>(std::current_exception()));
        }
      }
      command.kernel.release();
      for (const Version::Shared& version : std::exchange(nested_records_, {})) version->reach(failures_);
      break;
    case Command::Kind::kRecord:
      failures_.forget(command.submitted);
      command.version->reach(failures_);
      break;
    case Command::Kind::kWait:
      command.version->wait();
      failures_.add(command.version->failures());
      failures_.forget(command.submitted);
      break;
  }
}

void HostStream::run_here(OwnedKernel& kernel) {
  struct Reach {
    HostStream& stream;
    ~Reach() {
      if (stream.nested_records_.empty()) return;
      for (const Version::Shared& version : std::exchange(stream.nested_records_, {})) version->reach({});
    }
  } reach{*this};
  {
    const Running running(*this);
    kernel.run(handle());
  }
  kernel.release();
}

Version::Shared HostStream::mark_in_kernel() {
  return nested_records_.emplace_back(std::make_shared<Version>());
}

}  // namespace loom::driver
