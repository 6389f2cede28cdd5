// Atomic functions: threads of one block never run at once, those of two blocks may.
#pragma once

#include <string.h>

#include <type_traits>

namespace loom_cuda {

// For parameters whose type another one decides.
template <typename T>
struct Same {
  using type = T;
};
template <typename T>
using Given = typename Same<T>::type;

template <size_t bytes>
struct Bits;
template <>
struct Bits<2> {
  using type = unsigned short;
};
template <>
struct Bits<4> {
  using type = unsigned;
};
template <>
struct Bits<8> {
  using type = unsigned long long;
};

// Replaces *at by change(*at), and returns what was there.
template <typename T, typename F>
static inline T exchange_by(T* at, F&& change) {
  using Word = typename Bits<sizeof(T)>::type;
  Word* const word = reinterpret_cast<Word*>(const_cast<std::remove_cv_t<T>*>(at));
  Word seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (true) {
    T old;
    memcpy(&old, &seen, sizeof(T));
    const T wanted = change(old);
    Word next;
    memcpy(&next, &wanted, sizeof(T));
    if (__atomic_compare_exchange_n(word, &seen, next, /*weak=*/true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return old;
  }
}

template <typename T>
static inline T fetch_add(T* at, T value) {
  if constexpr (std::is_integral_v<T>) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
  } else {
    return exchange_by(at, [value](T old) { return static_cast<T>(old + value); });
  }
}

}  // namespace loom_cuda

#define LOOM_CUDA_ATOMIC(name, expression)                          \
  template <typename T>                                             \
  static inline T name(T* at, loom_cuda::Given<T> value) {          \
    return expression;                                              \
  }                                                                 \
  template <typename T>                                             \
  static inline T name##_system(T* at, loom_cuda::Given<T> value) { \
    return name(at, value);                                         \
  }                                                                 \
  template <typename T>                                             \
  static inline T name##_block(T* at, loom_cuda::Given<T> value) {  \
    return name(at, value);                                         \
  }

LOOM_CUDA_ATOMIC(atomicAdd, loom_cuda::fetch_add(at, value))
LOOM_CUDA_ATOMIC(atomicSub, __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST))
LOOM_CUDA_ATOMIC(atomicAnd, __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST))
LOOM_CUDA_ATOMIC(atomicOr, __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST))
LOOM_CUDA_ATOMIC(atomicXor, __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST))
LOOM_CUDA_ATOMIC(atomicMin, loom_cuda::exchange_by(at, [value](T old) { return value < old ? value : old; }))
LOOM_CUDA_ATOMIC(atomicMax, loom_cuda::exchange_by(at, [value](T old) { return old < value ? value : old; }))
LOOM_CUDA_ATOMIC(atomicExch, loom_cuda::exchange_by(at, [value](T) { return value; }))
LOOM_CUDA_ATOMIC(atomicInc,
                 loom_cuda::exchange_by(at, [value](T old) { return old >= value ? T(0) : T(old + 1); }))
LOOM_CUDA_ATOMIC(atomicDec, loom_cuda::exchange_by(at, [value](T old) {
                   return old == 0 || old > value ? value : T(old - 1);
                 }))
#undef LOOM_CUDA_ATOMIC

template <typename T>
static inline T atomicCAS(T* at, loom_cuda::Given<T> expected, loom_cuda::Given<T> wanted) {
  return loom_cuda::exchange_by(
      at, [&](T old) { return memcmp(&old, &expected, sizeof(T)) == 0 ? wanted : old; });
}
template <typename T>
static inline T atomicCAS_system(T* at, loom_cuda::Given<T> expected, loom_cuda::Given<T> wanted) {
  return atomicCAS(at, expected, wanted);
}
template <typename T>
static inline T atomicCAS_block(T* at, loom_cuda::Given<T> expected, loom_cuda::Given<T> wanted) {
  return atomicCAS(at, expected, wanted);
}
