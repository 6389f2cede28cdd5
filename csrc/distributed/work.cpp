#include "distributed/work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/completions.h"
#include "runtime/commands.h"
#include "torch/core/device.h"

namespace loom::distributed {

void Outcome::end(c10d::WorkResult result, std::exception_ptr failure) {
  std::vector<Then> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    if (result_.has_value()) return;
    result_ = result;
    waiting.swap(waiting_);
  }
  for (Then& then : waiting) call_later([then = std::move(then), result] { then(result); });
}

void Outcome::when_ended(Then then) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!result_.has_value()) return waiting_.push_back(std::move(then));
  call_later([then = std::move(then), result = *result_] { then(result); });
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
                 InUse in_use, Issued issued, std::optional<c10::Event> started)
    : Work(rank, kind),
      stream_(stream),
      moments_(std::make_shared<Moments>(Moments{
          std::move(started),
          c10::Event(stream.device_type(), started.has_value() ? kTimed : c10::EventFlag::PYTORCH_DEFAULT)})),
      results_(std::move(results)),
      issued_(std::move(issued)),
      in_use_(std::move(in_use)) {
  moments_->ended.record(stream);
}

c10::intrusive_ptr<c10::ivalue::Future> OwnWork::getFuture() {
  const std::lock_guard<std::mutex> lock(making_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{stream_.device()});
  // It remembers the stream that is current now, and makes code that uses its value wait for that.
  const c10::StreamGuard guard(stream_);
  future_->markCompleted(c10::IValue(results_));
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> OwnWork::getFutureResult() {
  TORCH_CHECK(
      !issued_.is_captured,
      "get_future_result(): the collective is captured by a graph, and ends with each replay. Ask for "
      "the result of one that is not captured");
  const std::lock_guard<std::mutex> lock(making_);
  if (future_result_ != nullptr) return future_result_;
  future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  issued_.outcome->when_ended([future = future_result_](c10d::WorkResult result) {
    future->markCompleted(c10::IValue(static_cast<int64_t>(result)));
  });
  return future_result_;
}

float OwnWork::getDuration() const {
  TORCH_CHECK(
      moments_->started.has_value(),
      "getDuration only works if timing was enabled: call _enable_collectives_timing() of the group, or "
      "set TORCH_NCCL_ENABLE_TIMING=1, before the collective");
  return static_cast<float>(moments_->started->elapsedTime(moments_->ended));
}

bool OwnWork::isCompleted() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  if (guard.isStreamCapturing(stream_)) return false;
  return issued_.outcome->failure() != nullptr || moments_->ended.query();
}

bool OwnWork::isSuccess() const { return issued_.outcome->failure() == nullptr; }

std::exception_ptr OwnWork::exception() const { return issued_.outcome->failure(); }

void OwnWork::synchronize() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  moments_->ended.block(guard.getStream(stream_.device()));
  in_use_.release();
  // Registered by PyTorch, for wait_tensor(), where a program may trace collectives that are under way.
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<OwnWork>::unsafe_reclaim_from_nonowning(this));
  }
}

bool OwnWork::wait(std::chrono::milliseconds timeout) {
  if (const std::exception_ptr failure = issued_.outcome->failure()) std::rethrow_exception(failure);
  synchronize();
  if (timeout == kNoTimeout) {
    if (issued_.blocks_host) moments_->ended.synchronize();
  } else {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!moments_->ended.query()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        C10_THROW_ERROR(DistBackendError, c10::str("Work ran for more than the ", timeout.count(),
                                                   " ms that wait() was given: a timeout."));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  if (const std::exception_ptr failure = issued_.outcome->failure()) std::rethrow_exception(failure);
  return true;
}

}  // namespace loom::distributed
