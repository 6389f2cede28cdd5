// What -fsanitize=thread calls.
#pragma once

#define LOOM_CUDA_CALLBACK extern "C" __attribute__((weak, visibility("hidden"), used)) LOOM_CUDA_UNCHECKED
#define LOOM_CUDA_ACCESS(name, bytes, is_written)                                                      \
  LOOM_CUDA_CALLBACK void __tsan_##name##bytes(void* at) {                                             \
    loom_cuda::check(reinterpret_cast<uintptr_t>(at), bytes, is_written, __builtin_return_address(0)); \
  }
#define LOOM_CUDA_ACCESSES(bytes)             \
  LOOM_CUDA_ACCESS(read, bytes, 0)            \
  LOOM_CUDA_ACCESS(write, bytes, 1)           \
  LOOM_CUDA_ACCESS(unaligned_read, bytes, 0)  \
  LOOM_CUDA_ACCESS(unaligned_write, bytes, 1) \
  LOOM_CUDA_ACCESS(volatile_read, bytes, 0)   \
  LOOM_CUDA_ACCESS(volatile_write, bytes, 1)
LOOM_CUDA_ACCESSES(1)
LOOM_CUDA_ACCESSES(2)
LOOM_CUDA_ACCESSES(4)
LOOM_CUDA_ACCESSES(8)
LOOM_CUDA_ACCESSES(16)
#undef LOOM_CUDA_ACCESSES
#undef LOOM_CUDA_ACCESS
LOOM_CUDA_CALLBACK void __tsan_read_range(void* at, size_t bytes) {
  loom_cuda::check(reinterpret_cast<uintptr_t>(at), bytes, 0, __builtin_return_address(0));
}
LOOM_CUDA_CALLBACK void __tsan_write_range(void* at, size_t bytes) {
  loom_cuda::check(reinterpret_cast<uintptr_t>(at), bytes, 1, __builtin_return_address(0));
}
LOOM_CUDA_CALLBACK void __tsan_vptr_update(void*, void*) {}
LOOM_CUDA_CALLBACK void __tsan_vptr_read(void*) {}
LOOM_CUDA_CALLBACK void __tsan_func_entry(void*) {}
LOOM_CUDA_CALLBACK void __tsan_func_exit() {}
LOOM_CUDA_CALLBACK void __tsan_init() {}

// Atomics come as calls alone.
#define LOOM_CUDA_ATOMIC(bits, T, name, parameters, is_written, expression)                                 \
  LOOM_CUDA_CALLBACK T __tsan_atomic##bits##_##name parameters {                                            \
    loom_cuda::check(reinterpret_cast<uintptr_t>(at), sizeof(*at), is_written, __builtin_return_address(0), \
                     true);                                                                                 \
    return expression;                                                                                      \
  }
#define LOOM_CUDA_FETCH(bits, T, name)                                \
  LOOM_CUDA_ATOMIC(bits, T, name, (volatile T * at, T value, int), 1, \
                   __atomic_##name(at, value, __ATOMIC_SEQ_CST))
#define LOOM_CUDA_EXCHANGE(bits, T, name)                                                          \
  LOOM_CUDA_ATOMIC(                                                                                \
      bits, bool, compare_exchange_##name, (volatile T * at, T * expected, T wanted, int, int), 1, \
      __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#define LOOM_CUDA_ATOMICS(bits, T)                                                                       \
  LOOM_CUDA_ATOMIC(bits, T, load, (const volatile T* at, int), 0, __atomic_load_n(at, __ATOMIC_SEQ_CST)) \
  LOOM_CUDA_ATOMIC(bits, void, store, (volatile T * at, T value, int), 1,                                \
                   __atomic_store_n(at, value, __ATOMIC_SEQ_CST))                                        \
  LOOM_CUDA_ATOMIC(bits, T, exchange, (volatile T * at, T value, int), 1,                                \
                   __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST))                                     \
  LOOM_CUDA_FETCH(bits, T, fetch_add)                                                                    \
  LOOM_CUDA_FETCH(bits, T, fetch_sub)                                                                    \
  LOOM_CUDA_FETCH(bits, T, fetch_and)                                                                    \
  LOOM_CUDA_FETCH(bits, T, fetch_or)                                                                     \
  LOOM_CUDA_FETCH(bits, T, fetch_xor)                                                                    \
  LOOM_CUDA_FETCH(bits, T, fetch_nand)                                                                   \
  LOOM_CUDA_EXCHANGE(bits, T, strong)                                                                    \
  LOOM_CUDA_EXCHANGE(bits, T, weak)
LOOM_CUDA_ATOMICS(8, unsigned char)
LOOM_CUDA_ATOMICS(16, unsigned short)
LOOM_CUDA_ATOMICS(32, unsigned)
LOOM_CUDA_ATOMICS(64, unsigned long long)
#undef LOOM_CUDA_ATOMICS
#undef LOOM_CUDA_EXCHANGE
#undef LOOM_CUDA_FETCH
#undef LOOM_CUDA_ATOMIC
LOOM_CUDA_CALLBACK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
LOOM_CUDA_CALLBACK void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
#undef LOOM_CUDA_CALLBACK
