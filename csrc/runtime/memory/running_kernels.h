// Kernels that run in the thread which issued them, and may take memory while they run: at their place on the
// stream, which is before everything that other threads submit meanwhile. What those threads free meanwhile
// may still be used behind that place, so it is no memory for such a kernel.
#pragma once

#include <atomic>
#include <cstdint>

#include "util/thread_local.h"

namespace loom::runtime {

class CachingAllocator;

// What a thread runs. Kept for the next thread when the thread ends.
struct RunningKernel {
  std::atomic<const CachingAllocator*> allocator{nullptr};  // null: nothing
  std::atomic<int64_t> stream{0};
  std::atomic<const RunningKernel*> thread{nullptr};  // the first record of the owning thread
  std::atomic<bool> is_taken{true};
  RunningKernel* next = nullptr;

  // This thread's first record; null before its first kernel.
  LOOM_FAST_ACCESS static constinit thread_local RunningKernel* own;
  static RunningKernel& make_own();
  // A further record of this thread, for a kernel within a kernel; to be given back.
  static RunningKernel& take_further();
  void give_back() noexcept { is_taken.store(false, std::memory_order_release); }
};

// While it lives, this thread may run kernels of a stream, and they may take memory of an allocator. Made
// before such a kernel is submitted.
class RunsKernels {
 public:
  RunsKernels(const CachingAllocator* allocator, int64_t stream)
      : kernel_(RunningKernel::own != nullptr ? RunningKernel::own : &RunningKernel::make_own()),
        is_further_(kernel_->allocator.load(std::memory_order_relaxed) != nullptr) {
    if (is_further_) [[unlikely]] {
      kernel_ = &RunningKernel::take_further();
    }
    kernel_->stream.store(stream, std::memory_order_relaxed);
    kernel_->allocator.store(allocator, std::memory_order_release);
  }
  ~RunsKernels() {
    kernel_->allocator.store(nullptr, std::memory_order_release);
    if (is_further_) [[unlikely]] {
      kernel_->give_back();
    }
  }
  RunsKernels(const RunsKernels&) = delete;
  RunsKernels& operator=(const RunsKernels&) = delete;

 private:
  RunningKernel* kernel_;
  const bool is_further_;
};

// Whether another thread runs kernels of this stream itself. A thread that has submitted work to the stream
// sees those that run before that work.
bool others_run_kernels(const CachingAllocator* allocator, int64_t stream) noexcept;

}  // namespace loom::runtime
