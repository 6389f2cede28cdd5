// A collective under way.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace loom::distributed {

// How a collective has ended, written by the thread that runs it; of several replays the first one counts.
class Outcome {
 public:
  using Then = std::function<void(c10d::WorkResult)>;

  void succeed() { end(c10d::WorkResult::SUCCESS, nullptr); }
  void fail(std::exception_ptr failure, c10d::WorkResult result) { end(result, std::move(failure)); }
  std::exception_ptr failure() const;
  // Calls it later (completions.h) when the collective has ended, or has already.
  void when_ended(Then then);

 private:
  void end(c10d::WorkResult result, std::exception_ptr failure);

  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::optional<c10d::WorkResult> result_;
  std::vector<Then> waiting_;
};

constexpr c10::EventFlag kTimed = c10::EventFlag::BACKEND_DEFAULT;

// When a stream came to a collective and when it had ended; kept by those who ask for its time.
struct Moments {
  std::optional<c10::Event> started;  // where works are timed
  c10::Event ended;
};

// The tensors that a collective reads and writes, kept until a stream has waited for it: their memory is
// given back in the order of that stream then, as NCCL's is, and no event is needed.
class InUse {
 public:
  explicit InUse(c10::Stream stream) : stream_(stream) {}
  InUse(InUse&& other) noexcept : stream_(other.stream_), tensors_(std::exchange(other.tensors_, {})) {}
  InUse& operator=(InUse&&) = delete;
  // Where nothing has waited, what `stream` was given by now ends before the memory is used again.
  ~InUse();

  void add(const std::vector<at::Tensor>& tensors) {
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }
  void release();

 private:
  const c10::Stream stream_;
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
};

// What a work knows of its command.
struct Issued {
  std::shared_ptr<Outcome> outcome;
  uint64_t sequence = 0;
  std::chrono::milliseconds timeout{};
  bool blocks_host = false;  // who waits for the work
  bool is_captured = false;
};

class OwnWork final : public c10d::Work {
 public:
  // Made when the command has been submitted to `stream`, which is current then. `started` is an event
  // before it, if works are timed.
  OwnWork(int rank, c10d::OpType kind, c10::Stream stream, std::vector<at::Tensor> results, InUse in_use,
          Issued issued, std::optional<c10::Event> started);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return results_; }
  // The current stream waits; with a time-out, or for a barrier, the host.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Of a c10d::WorkResult, as a number.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds of the device's time.
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return issued_.sequence; }
  void when_ended(Outcome::Then then) { issued_.outcome->when_ended(std::move(then)); }
  const Issued& issued() const noexcept { return issued_; }
  const std::shared_ptr<Moments>& moments() const noexcept { return moments_; }

 private:
  const c10::Stream stream_;
  const std::shared_ptr<Moments> moments_;
  const std::vector<at::Tensor> results_;
  const Issued issued_;
  InUse in_use_;
  std::mutex making_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;  // made when they are asked for
};

}  // namespace loom::distributed
