// What -fsanitize=kernel-address calls.
#pragma once

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
