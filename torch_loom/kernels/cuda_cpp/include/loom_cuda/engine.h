// What compiled kernels and the process that runs them know of each other: torch_loom's extension module
// exports these functions, code that CUDA C++ became calls them. Plain C types, so that both may be compiled
// by different compilers.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Whenever something below changes, another number: what was compiled against another one is refused.
#define LOOM_CUDA_ABI 1

// Its accesses to shared memory call loom_cuda_access_shared(), too, and those to memory of the device
// loom_cuda_access() each time.
#define LOOM_CUDA_CHECKS_RACES 3

#define LOOM_CUDA_EXPORT __attribute__((visibility("default")))

// A thread of the host that runs blocks, one after the other. The threads of a block run one after the other,
// too, on one stack; a thread that waits keeps that stack, and the others go on on another one.
struct loom_cuda_runner {
  unsigned grid[3], block[3];
  unsigned at[3];        // the block that runs
  unsigned num_threads;  // of a block
  unsigned next_thread;  // the first of the block's threads that has not begun
  size_t shared_bytes;   // dynamic shared memory
  char* shared;
};

// Of an argument of a kernel: where it is kept, and its bytes. Pointers of the device in it are found by
// their values.
struct loom_cuda_argument {
  void* value;
  size_t bytes;
};

// A kernel and what it is launched with.
struct loom_cuda_kernel {
  int abi;         // LOOM_CUDA_ABI
  int is_checked;  // whether its accesses call loom_cuda_access(), and LOOM_CUDA_CHECKS_RACES
  int is_cooperative;
  const char* name;   // "scale<float>"
  const char* place;  // "scale.cu:12", may be empty
  // Runs threads of the runner's block, and then other blocks as long as loom_cuda_next_block() has one.
  // Returns early, having run the thread that it was in, where a thread has waited.
  void (*run)(const void* closure, struct loom_cuda_runner* runner);
  // Runs those threads of the block that have not begun.
  void (*run_rest)(const void* closure, struct loom_cuda_runner* runner);
  void (*thread_index)(unsigned* xyz);  // of the thread that runs
  void (*release)(void* closure);
  void* closure;
  size_t closure_bytes;
  const struct loom_cuda_argument* arguments;  // kept by the closure
  int num_arguments;
  unsigned grid[3], block[3];
  size_t shared_bytes;
  void* stream;  // a cudaStream_t
};

// Submits a kernel to its stream, in whose order it runs. Takes the closure, also where it fails. Returns a
// cudaError_t, which is also kept for cudaGetLastError().
LOOM_CUDA_EXPORT int loom_cuda_launch(const struct loom_cuda_kernel* kernel);
// Runs a kernel in this thread and those of the host's pool before it returns; keeps the closure. What fails
// in the kernel is noted with the device.
LOOM_CUDA_EXPORT void loom_cuda_run(const struct loom_cuda_kernel* kernel);

// --- for kernels, while they run ---

// Sets `at` to a further block; 0 where there is none.
LOOM_CUDA_EXPORT int loom_cuda_next_block(struct loom_cuda_runner* runner);
// The first wait of a thread of this block: from now on each thread must end with loom_cuda_end_thread().
LOOM_CUDA_EXPORT void loom_cuda_begin_waiting(struct loom_cuda_runner* runner, unsigned thread);
LOOM_CUDA_EXPORT void loom_cuda_end_thread(struct loom_cuda_runner* runner, unsigned thread);
enum { LOOM_CUDA_SYNC, LOOM_CUDA_COUNT, LOOM_CUDA_AND, LOOM_CUDA_OR };
// Waits for all threads of the block that have not ended. Returns what the kind makes of their values.
LOOM_CUDA_EXPORT int loom_cuda_barrier(struct loom_cuda_runner* runner, unsigned thread, int kind, int value);
// Waits for the lanes of a mask; the last calls `combine` with what each lane has given, and the lanes that
// are there. All must give the same function.
LOOM_CUDA_EXPORT void loom_cuda_meet(struct loom_cuda_runner* runner, unsigned thread, unsigned mask,
                                     void* given, void (*combine)(void* const* given, unsigned lanes));
// The lanes of the warp that are here, too.
LOOM_CUDA_EXPORT unsigned loom_cuda_active(struct loom_cuda_runner* runner, unsigned thread);
// Waits for all blocks of a cooperative launch: one thread of each block calls it.
LOOM_CUDA_EXPORT void loom_cuda_grid_barrier(struct loom_cuda_runner* runner);
// A thread has read what another block may change, maybe again and again: blocks that have not begun begin.
LOOM_CUDA_EXPORT void loom_cuda_poll(struct loom_cuda_runner* runner);
// The kernel fails: CUDA's number of the error, and what else is known. Does not return.
LOOM_CUDA_EXPORT void loom_cuda_fail(int error, const char* what) __attribute__((noreturn));
// What assert() calls; outside of a kernel it ends the process as usual.
LOOM_CUDA_EXPORT void loom_cuda_assert_fail(const char* assertion, const char* file, unsigned line,
                                            const char* function)
#ifdef __cplusplus
    noexcept
#endif
    __attribute__((noreturn));
// Whether this thread of the host runs a kernel now.
LOOM_CUDA_EXPORT int loom_cuda_in_kernel(void);
// In checked builds, before an access: fails the kernel where `bytes` at `address` are no memory of the
// kernel's. `how`: some of LOOM_CUDA_WRITES and LOOM_CUDA_ATOMIC. `from` is the code that accesses. Sets
// `known` to a range around the address that may be accessed without asking again.
enum { LOOM_CUDA_WRITES = 1, LOOM_CUDA_ATOMIC = 2 };
struct loom_cuda_range {
  uintptr_t begin, end;
};
LOOM_CUDA_EXPORT void loom_cuda_access(uintptr_t address, size_t bytes, int how, const void* from,
                                       struct loom_cuda_range* known);
// The kernel accesses memory of the device without a call of loom_cuda_access().
LOOM_CUDA_EXPORT void loom_cuda_unwatched(void);
// Before an access to shared memory by a thread of the block: fails the kernel where it races with another
// one.
LOOM_CUDA_EXPORT void loom_cuda_access_shared(uintptr_t address, size_t bytes, unsigned thread,
                                              int is_written, int is_atomic, const void* from);
LOOM_CUDA_EXPORT unsigned long long loom_cuda_clock(void);

#ifdef __cplusplus
}
#endif
