// Loads and stores with hints, kinds of addresses, time.
#pragma once

#include <time.h>

#include "loom_cuda/shared_addresses.h"
#include "loom_cuda/threads.h"

#define LOOM_CUDA_LOAD(name)          \
  template <typename T>               \
  static inline T name(const T* at) { \
    return *at;                       \
  }
LOOM_CUDA_LOAD(__ldg)
LOOM_CUDA_LOAD(__ldcg)
LOOM_CUDA_LOAD(__ldca)
LOOM_CUDA_LOAD(__ldcs)
LOOM_CUDA_LOAD(__ldlu)
LOOM_CUDA_LOAD(__ldcv)
#undef LOOM_CUDA_LOAD
#define LOOM_CUDA_STORE(name)               \
  template <typename T, typename V>         \
  static inline void name(T* at, V value) { \
    *at = static_cast<T>(value);            \
  }
LOOM_CUDA_STORE(__stwb)
LOOM_CUDA_STORE(__stcg)
LOOM_CUDA_STORE(__stcs)
LOOM_CUDA_STORE(__stwt)
#undef LOOM_CUDA_STORE

static inline unsigned long long clock64() { return loom_cuda_clock(); }
// What clock() calls (prelude.h): in a kernel it is the device's, and elsewhere the C library's.
extern "C" __attribute__((weak, visibility("hidden"), used)) clock_t loom_cuda_clock_of_caller() {
  if (loom_cuda_in_kernel()) return static_cast<clock_t>(loom_cuda_clock());
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * CLOCKS_PER_SEC + used.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}
static inline unsigned long long __nvvm_read_ptx_sreg_globaltimer() { return loom_cuda_clock(); }
static inline void __nanosleep(unsigned) {}
static inline void __trap() { loom_cuda_fail(719, "__trap()"); }
static inline void __brkpt() {}
static inline void __prof_trigger(int) {}
static inline bool __isGlobal(const void*) { return true; }
static inline size_t __cvta_generic_to_shared(const void* at) { return loom_cuda::shared_address(at); }
static inline size_t __cvta_generic_to_global(const void* at) { return reinterpret_cast<size_t>(at); }
static inline void* __cvta_shared_to_generic(size_t at) { return loom_cuda::of_shared(at); }
static inline void* __cvta_global_to_generic(size_t at) { return reinterpret_cast<void*>(at); }

// Copies from global to shared memory that a thread waits for: they are done at once.
static inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  memcpy(to, from, bytes - zeros);
  memset(static_cast<char*>(to) + bytes - zeros, 0, zeros);
}
static inline void __pipeline_commit() {}
static inline void __pipeline_wait_prior(size_t) {}
