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
// A GPU returns some number; the host would end the process.
LOOM_CUDA_HANDLER(divrem_overflow)(void* data, uintptr_t, uintptr_t) {
  loom_cuda::fail_at(719, "integer division by zero", data);
}
LOOM_CUDA_HANDLER(divrem_overflow_abort)(void* data, uintptr_t, uintptr_t) {
  loom_cuda::fail_at(719, "integer division by zero", data);
}

#ifdef LOOM_CUDA_CHECKED
LOOM_CUDA_HANDLER(out_of_bounds)(void* data, uintptr_t index) {
  char text[96];
  snprintf(text, sizeof(text), "index %lld is outside of its array", static_cast<long long>(index));
  if (loom_cuda_in_kernel()) loom_cuda::fail_at(700, text, data);
}
LOOM_CUDA_HANDLER(out_of_bounds_abort)(void* data, uintptr_t index) {
  __ubsan_handle_out_of_bounds(data, index);
}

namespace loom_cuda {
static thread_local int unchecked_depth;
// Accesses of this thread are not looked at while there is one.
struct Unchecked {
  Unchecked() { ++unchecked_depth; }
  ~Unchecked() { --unchecked_depth; }
  Unchecked(const Unchecked&) = delete;
};
}  // namespace loom_cuda

// -fsanitize=kernel-address. Code of the host is instrumented as well, and lets everything pass.
namespace loom_cuda {

#define LOOM_CUDA_UNCHECKED __attribute__((no_sanitize("kernel-address", "address")))

// Ranges that accesses have been found to be in.
static thread_local loom_cuda_range known_ranges[4];
static thread_local unsigned next_range;

LOOM_CUDA_UNCHECKED __attribute__((noinline)) static void check_slowly(uintptr_t address, size_t bytes,
                                                                       int is_written, const void* from) {
  if (!loom_cuda_in_kernel()) return;
  loom_cuda_range& range = known_ranges[next_range++ % 4];
  range = {1, 0};
  loom_cuda_access(address, bytes, is_written, from, &range);
}

LOOM_CUDA_UNCHECKED static inline void check(uintptr_t address, size_t bytes, int is_written,
                                             const void* from) {
  if (runner == nullptr || unchecked_depth != 0) return;
  for (const loom_cuda_range& range : known_ranges) {
    if (address >= range.begin && address + bytes <= range.end) return;
  }
  check_slowly(address, bytes, is_written, from);
}

}  // namespace loom_cuda

#define LOOM_CUDA_CALLBACK(name) \
  extern "C" __attribute__((weak, visibility("hidden"), used)) LOOM_CUDA_UNCHECKED void __asan_##name
#define LOOM_CUDA_ACCESS(bytes)                                  \
  LOOM_CUDA_CALLBACK(load##bytes##_noabort)(uintptr_t at) {      \
    loom_cuda::check(at, bytes, 0, __builtin_return_address(0)); \
  }                                                              \
  LOOM_CUDA_CALLBACK(store##bytes##_noabort)(uintptr_t at) {     \
    loom_cuda::check(at, bytes, 1, __builtin_return_address(0)); \
  }
LOOM_CUDA_ACCESS(1)
LOOM_CUDA_ACCESS(2)
LOOM_CUDA_ACCESS(4)
LOOM_CUDA_ACCESS(8)
LOOM_CUDA_ACCESS(16)
#undef LOOM_CUDA_ACCESS
LOOM_CUDA_CALLBACK(loadN_noabort)(uintptr_t at, size_t bytes) {
  if (bytes != 0) loom_cuda::check(at, bytes, 0, __builtin_return_address(0));
}
LOOM_CUDA_CALLBACK(storeN_noabort)(uintptr_t at, size_t bytes) {
  if (bytes != 0) loom_cuda::check(at, bytes, 1, __builtin_return_address(0));
}
LOOM_CUDA_CALLBACK(handle_no_return)() {}
LOOM_CUDA_CALLBACK(before_dynamic_init)(const char*) {}
LOOM_CUDA_CALLBACK(after_dynamic_init)() {}
#else
namespace loom_cuda {
struct Unchecked {
  Unchecked() {}
};
}  // namespace loom_cuda
#endif
