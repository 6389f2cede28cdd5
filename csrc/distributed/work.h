// A collective under way.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace loom::distributed {

// How a collective has ended, written by the thread that runs it.
class Outcome {
 public:
  void fail(std::exception_ptr failure);
  std::exception_ptr failure() const;

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
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

// As TORCH_NCCL_BLOCKING_WAIT: whether waiting for a work makes the host wait.
void set_waits_block_host(bool blocks) noexcept;

class OwnWork final : public c10d::Work {
 public:
  // Made when the command has been submitted to `stream`, which is current then.
  OwnWork(int rank, c10d::OpType kind, c10::Stream stream, std::vector<at::Tensor> results, InUse in_use,
          std::shared_ptr<Outcome> outcome, uint64_t sequence, bool blocks_host);

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
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const c10::Stream stream_;
  c10::Event ended_;
  const std::vector<at::Tensor> results_;
  const std::shared_ptr<Outcome> outcome_;
  const uint64_t sequence_;
  const bool blocks_host_;
  InUse in_use_;
  std::mutex making_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for
};

}  // namespace loom::distributed
