// What the compiler's checks call, with no library behind them.
#pragma once

#include "loom_cuda/threads.h"

namespace loom_cuda {

// How -fsanitize describes a place (GCC's libsanitizer/ubsan/ubsan_value.h).
struct CheckedPlace {
  const char* file;
  unsigned line, column;
};
static inline void fail_at(int error, const char* what, const void* data) {
  const auto& place = *static_cast<const CheckedPlace*>(data);
  char text[512];
  snprintf(text, sizeof(text), "%s at %s:%u", what, place.file, place.line);
  loom_cuda_fail(error, text);
}

}  // namespace loom_cuda

#define LOOM_CUDA_HANDLER(name) \
  extern "C" __attribute__((weak, visibility("hidden"), used)) void __ubsan_handle_##name
#ifdef LOOM_CUDA_CHECKED
LOOM_CUDA_HANDLER(divrem_overflow)(void* data, uintptr_t, uintptr_t divisor) {
#ifdef LOOM_CUDA_RACES
  if (divisor != 0) return;  // the smallest number by -1, which is itself
#endif
  if (loom_cuda_in_kernel()) loom_cuda::fail_at(719, "integer division by zero", data);
}
LOOM_CUDA_HANDLER(out_of_bounds)(void* data, uintptr_t index) {
  char text[96];
  snprintf(text, sizeof(text), "index %lld is outside of its array", static_cast<long long>(index));
  if (loom_cuda_in_kernel()) loom_cuda::fail_at(700, text, data);
}
LOOM_CUDA_HANDLER(out_of_bounds_abort)(void* data, uintptr_t index) {
  __ubsan_handle_out_of_bounds(data, index);
}

namespace loom_cuda {
// Volatile: compilers take checks for functions that do not read it, and would not write it.
LOOM_CUDA_OF_THREAD volatile int unchecked_depth;
// Accesses of this thread are not looked at while there is one.
struct Unchecked {
  Unchecked() { ++unchecked_depth; }
  ~Unchecked() { --unchecked_depth; }
  Unchecked(const Unchecked&) = delete;
};
// The same, where these may be accesses to memory of the device.
struct Unwatched : Unchecked {
  Unwatched() { loom_cuda_unwatched(); }
};
}  // namespace loom_cuda

#ifdef LOOM_CUDA_RACES
#include "loom_cuda/overflow.h"
#include "loom_cuda/thread_races.h"

namespace loom_cuda {
LOOM_CUDA_OF_THREAD ThreadRaces* thread_races;
}  // namespace loom_cuda
#endif

// Code of the host is instrumented as well, and lets everything pass.
namespace loom_cuda {

#define LOOM_CUDA_UNCHECKED __attribute__((no_sanitize("kernel-address", "address", "thread")))

// Ranges that accesses have been found to be in.
LOOM_CUDA_OF_THREAD loom_cuda_range known_ranges[4];
LOOM_CUDA_OF_THREAD unsigned next_range;

LOOM_CUDA_UNCHECKED __attribute__((noinline)) static void check_slowly(uintptr_t address, size_t bytes,
                                                                       int how, const void* from) {
  if (!loom_cuda_in_kernel()) return;
  loom_cuda_range known{1, 0};
  loom_cuda_access(address, bytes, how, from, &known);
  known_ranges[next_range++ % 4] = known;
#ifdef LOOM_CUDA_RACES
  // No range is known of memory of the device that is watched.
  if (known.end == 0) {
    const Unchecked own_memory;
    thread_races->note(address, bytes, thread_rank(), (how & LOOM_CUDA_WRITES) != 0,
                       (how & LOOM_CUDA_ATOMIC) != 0, from);
  }
#endif
}

#ifdef LOOM_CUDA_RACES
static inline void begin_block_of_races() {
  const Unchecked own_memory;
  // Kept as long as the thread of the host: it is of one of the few that launch.
  if (thread_races == nullptr) thread_races = new ThreadRaces;
  thread_races->begin_block();
}
static inline void settle_races() {
  const Unchecked own_memory;
  thread_races->settle();
}
static inline void pass_barrier(unsigned rank) {
  const Unchecked own_memory;
  thread_races->pass_barrier(rank);
}
static inline void arrive_at_meeting(unsigned rank) {
  const Unchecked own_memory;
  thread_races->arrive(rank);
}
static inline void leave_meeting(unsigned rank, unsigned mask) {
  const Unchecked own_memory;
  thread_races->leave(rank, mask);
}

// Static shared memory that the kernel has reached the declarations of.
LOOM_CUDA_OF_THREAD loom_cuda_range shared_ranges[64];
LOOM_CUDA_OF_THREAD unsigned num_shared;

template <typename T>
LOOM_CUDA_UNCHECKED static inline void note_shared(const T& variable) {
  const auto begin = reinterpret_cast<uintptr_t>(&variable);
  for (unsigned i = 0; i < num_shared; ++i) {
    if (shared_ranges[i].begin == begin) return;
  }
  if (num_shared < 64) shared_ranges[num_shared++] = {begin, begin + sizeof(T)};
}

LOOM_CUDA_UNCHECKED static inline void check_shared(uintptr_t address, size_t bytes, int is_written,
                                                    bool is_atomic, const void* from) {
  const auto dynamic = reinterpret_cast<uintptr_t>(runner->shared);
  bool is_shared = address >= dynamic && address + bytes <= dynamic + runner->shared_bytes;
  for (unsigned i = 0; i < num_shared && !is_shared; ++i)
    is_shared = address >= shared_ranges[i].begin && address + bytes <= shared_ranges[i].end;
  if (!is_shared) return;
  const unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  loom_cuda_access_shared(address, bytes, rank, is_written, is_atomic, from);
}
#endif

LOOM_CUDA_UNCHECKED static inline void check(uintptr_t address, size_t bytes, int is_written,
                                             const void* from, bool is_atomic = false) {
  if (runner == nullptr || unchecked_depth != 0) return;
#ifdef LOOM_CUDA_RACES
  check_shared(address, bytes, is_written, is_atomic, from);
#endif
  for (const loom_cuda_range& range : known_ranges) {
    if (address >= range.begin && address + bytes <= range.end) return;
  }
  const int how = (is_written ? LOOM_CUDA_WRITES : 0) | (is_atomic ? LOOM_CUDA_ATOMIC : 0);
  check_slowly(address, bytes, how, from);
}

}  // namespace loom_cuda

#ifdef LOOM_CUDA_RACES
#include "loom_cuda/thread_callbacks.h"
#else
#include "loom_cuda/address_callbacks.h"
#endif
#else
namespace loom_cuda {
struct Unchecked {
  Unchecked() {}
};
using Unwatched = Unchecked;
}  // namespace loom_cuda
#endif

#ifndef LOOM_CUDA_RACES
namespace loom_cuda {
template <typename T>
static inline void note_shared(const T&) {}
static inline void begin_block_of_races() {}
static inline void settle_races() {}
static inline void pass_barrier(unsigned) {}
static inline void arrive_at_meeting(unsigned) {}
static inline void leave_meeting(unsigned, unsigned) {}
}  // namespace loom_cuda
#endif
