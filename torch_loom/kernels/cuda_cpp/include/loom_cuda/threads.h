// The indices of the thread that runs, and all by which threads wait for one another.
#pragma once

#include <string.h>

#include "loom_cuda/engine.h"
#include "loom_cuda/qualifiers.h"
#include "loom_cuda/types.h"

// One set for each source file and thread of the host: no other file can change them, so that the compiler
// may keep them in registers. Relocatable code calls functions of other files, and has one set for all.
#ifdef LOOM_CUDA_RELOCATABLE
#define LOOM_CUDA_OF_THREAD __attribute__((weak, visibility("hidden"))) __thread
#else
#define LOOM_CUDA_OF_THREAD static thread_local
#endif
LOOM_CUDA_OF_THREAD uint3 threadIdx, blockIdx;
LOOM_CUDA_OF_THREAD uint3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace loom_cuda {

// Of variables that are __shared__, in bytes, of all that a function sees; dynamic memory may be more. CUDA
// C++ Programming Guide, "Technical Specifications per Compute Capability".
static constexpr size_t kMostStaticShared = 48 << 10;

LOOM_CUDA_OF_THREAD loom_cuda_runner* runner;
// Whether a thread of the block has waited.
LOOM_CUDA_OF_THREAD bool has_waited;

static inline unsigned thread_rank() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static inline unsigned lane() { return thread_rank() % 32; }

// For the checks of races (checks.h): a thread goes on, has come behind a barrier, or meets lanes of its
// warp.
static inline void settle_races();
static inline void pass_barrier(unsigned rank);
static inline void arrive_at_meeting(unsigned rank);
static inline void leave_meeting(unsigned rank, unsigned mask);

// Around each call by which a thread may wait: other threads run meanwhile, and leave their index behind.
struct Wait {
  const uint3 thread;
  const unsigned rank;
  Wait(const Wait&) = delete;
  Wait() : thread(threadIdx), rank(thread_rank()) {
    settle_races();
    if (!has_waited) {
      has_waited = true;
      loom_cuda_begin_waiting(runner, rank);
    }
  }
  ~Wait() {
    threadIdx = thread;
#ifdef LOOM_CUDA_CHECKED
    asm volatile("" : "+m"(threadIdx) : : "memory");  // before the next check
#endif
  }
};

static inline int barrier(int kind, int value) {
  const Wait wait;
  const int result = loom_cuda_barrier(runner, wait.rank, kind, value);
  pass_barrier(wait.rank);
  return result;
}

// Each lane of `mask` gives a T, and the last one lets `combine` change them all: it is given pointers to
// them by lane, and the lanes that are there.
template <typename T>
static inline void meet(unsigned mask, T& given, void (*combine)(void* const* given, unsigned lanes)) {
  const Wait wait;
  arrive_at_meeting(wait.rank);
  loom_cuda_meet(runner, wait.rank, mask, &given, combine);
  leave_meeting(wait.rank, mask);
}

static inline void* dynamic_shared() { return runner->shared; }

}  // namespace loom_cuda

static inline void __syncthreads() { loom_cuda::barrier(LOOM_CUDA_SYNC, 0); }
static inline int __syncthreads_count(int value) { return loom_cuda::barrier(LOOM_CUDA_COUNT, value); }
static inline int __syncthreads_and(int value) { return loom_cuda::barrier(LOOM_CUDA_AND, value); }
static inline int __syncthreads_or(int value) { return loom_cuda::barrier(LOOM_CUDA_OR, value); }
static inline void __barrier_sync(unsigned) { __syncthreads(); }

static inline unsigned __activemask() {
  const loom_cuda::Wait wait;
  return loom_cuda_active(loom_cuda::runner, wait.rank);
}

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
