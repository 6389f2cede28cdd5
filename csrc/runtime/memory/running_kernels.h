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
  std::atomic<bool> is_taken{true};
  RunningKernel* next = nullptr;

  // Of this thread, or null before its first.
  LOOM_FAST_ACCESS static constinit thread_local RunningKernel* own;
  static RunningKernel& make_own();
};

// While it lives, this thread may run kernels of a stream, and they may take memory of an allocator. Made
// before such a kernel is submitted.
class RunsKernels {
 public:
  RunsKernels(const CachingAllocator* allocator, int64_t stream)
      : kernel_(RunningKernel::own != nullptr ? *RunningKernel::own : RunningKernel::make_own()),
        outer_(kernel_.allocator.load(std::memory_order_relaxed)),
        outer_stream_(kernel_.stream.load(std::memory_order_relaxed)) {
    set(allocator, stream);
  }
  ~RunsKernels() { set(outer_, outer_stream_); }
  RunsKernels(const RunsKernels&) = delete;
  RunsKernels& operator=(const RunsKernels&) = delete;

 private:
  void set(const CachingAllocator* allocator, int64_t stream) noexcept {
    kernel_.stream.store(stream, std::memory_order_relaxed);
    kernel_.allocator.store(allocator, std::memory_order_release);
  }

  RunningKernel& kernel_;
  const CachingAllocator* const outer_;
  const int64_t outer_stream_;
};

// Whether another thread runs kernels of this stream itself. A thread that has submitted work to the stream
// sees those that run before that work.
bool others_run_kernels(const CachingAllocator* allocator, int64_t stream) noexcept;

}  // namespace loom::runtime
