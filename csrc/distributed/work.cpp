#include "distributed/work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/commands.h"
#include "torch/core/device.h"

namespace loom::distributed {

namespace {

std::atomic<bool> waits_block_host{false};

}  // namespace

void set_waits_block_host(bool blocks) noexcept { waits_block_host = blocks; }

void Outcome::fail(std::exception_ptr failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ == nullptr) failure_ = std::move(failure);
}

std::exception_ptr Outcome::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

InUse::~InUse() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.numel() == 0) continue;
    try {
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
    } catch (const std::exception&) {  // a forked child, which has no devices
    }
  }
}

void InUse::release() {
  std::vector<at::Tensor> released;  // given back without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  released.swap(tensors_);
}

OwnWork::OwnWork(int rank, c10d::OpType kind, c10::Stream stream, std::vector<at::Tensor> results,
                 InUse in_use, std::shared_ptr<Outcome> outcome, uint64_t sequence, bool blocks_host)
    : Work(rank, kind),
      stream_(stream),
      ended_(stream.device_type(), c10::EventFlag::PYTORCH_DEFAULT),
      results_(std::move(results)),
      outcome_(std::move(outcome)),
      sequence_(sequence),
      blocks_host_(blocks_host || waits_block_host),
      in_use_(std::move(in_use)) {
  ended_.record(stream);
}

c10::intrusive_ptr<c10::ivalue::Future> OwnWork::getFuture() {
  const std::lock_guard<std::mutex> lock(making_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{stream_.device()});
  // It remembers the stream that is current now, and has whoever uses its value wait for that.
  const c10::StreamGuard guard(stream_);
  future_->markCompleted(c10::IValue(results_));
  return future_;
}

bool OwnWork::isCompleted() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  if (guard.isStreamCapturing(stream_)) return false;
  return outcome_->failure() != nullptr || ended_.query();
}

bool OwnWork::isSuccess() const { return outcome_->failure() == nullptr; }

std::exception_ptr OwnWork::exception() const { return outcome_->failure(); }

void OwnWork::synchronize() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  ended_.block(guard.getStream(stream_.device()));
  in_use_.release();
  // Registered by PyTorch, for wait_tensor(), where a program may trace collectives that are under way.
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<OwnWork>::unsafe_reclaim_from_nonowning(this));
  }
}

bool OwnWork::wait(std::chrono::milliseconds timeout) {
  if (const std::exception_ptr failure = outcome_->failure()) std::rethrow_exception(failure);
  synchronize();
  if (timeout == kNoTimeout) {
    if (blocks_host_) ended_.synchronize();
  } else {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!ended_.query()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        C10_THROW_ERROR(DistBackendError, c10::str("Work ran for more than the ", timeout.count(),
                                                   " ms that wait() was given: a timeout."));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  if (const std::exception_ptr failure = outcome_->failure()) std::rethrow_exception(failure);
  return true;
}

}  // namespace loom::distributed
