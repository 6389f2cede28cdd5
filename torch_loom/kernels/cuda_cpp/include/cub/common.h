// What this subset of cub shares. Its collectives exchange values through shared memory and the block's
// barrier.
#pragma once

#include <float.h>
#include <limits.h>

#include "cuda/cmath"
#include "cuda/functional"
#include "loom_cuda/device.h"

#define CUB_VERSION 200500
#define CUB_MAJOR_VERSION 2
#define CUB_MINOR_VERSION 5
#define CUB_PTX_ARCH 800
#define CUB_WARP_THREADS(arch) 32
#define CUB_LOG_WARP_THREADS(arch) 5
#define CUB_PTX_WARP_THREADS 32
#define CUB_PTX_LOG_WARP_THREADS 5
#define CUB_MIN(a, b) (((b) < (a)) ? (b) : (a))
#define CUB_MAX(a, b) (((a) < (b)) ? (b) : (a))
#define CUB_NS_QUALIFIER ::cub
#define CUB_NAMESPACE_BEGIN namespace cub {
#define CUB_NAMESPACE_END }

// Programs, and PyTorch's headers, may have cub in a namespace of theirs.
namespace cub {}
namespace at_cuda_detail {
namespace cub = ::cub;
}
#if defined(CUB_WRAPPED_NAMESPACE)
namespace CUB_WRAPPED_NAMESPACE {
namespace cub = ::cub;
}
#elif defined(THRUST_CUB_WRAPPED_NAMESPACE)
namespace THRUST_CUB_WRAPPED_NAMESPACE {
namespace cub = ::cub;
}
#endif

namespace cub {

struct NullType {};

struct Sum {
  template <typename A, typename B>
  auto operator()(const A& a, const B& b) const {
    return a + b;
  }
};
struct Max {
  template <typename A, typename B>
  auto operator()(const A& a, const B& b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <typename A, typename B>
  auto operator()(const A& a, const B& b) const {
    return b < a ? b : a;
  }
};
struct Equality {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return a == b;
  }
};
struct Inequality {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return !(a == b);
  }
};
struct Difference {
  template <typename A, typename B>
  auto operator()(const A& a, const B& b) const {
    return a - b;
  }
};
struct Division {
  template <typename A, typename B>
  auto operator()(const A& a, const B& b) const {
    return a / b;
  }
};
template <typename T>
struct CastOp {
  template <typename A>
  T operator()(const A& a) const {
    return static_cast<T>(a);
  }
};
template <typename Equal>
struct InequalityWrapper {
  Equal equal;
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return !equal(a, b);
  }
};
struct ArgMax {
  template <typename P>
  P operator()(const P& a, const P& b) const {
    return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <typename P>
  P operator()(const P& a, const P& b) const {
    return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a;
  }
};

template <typename K, typename V>
struct KeyValuePair {
  using Key = K;
  using Value = V;
  K key;
  V value;
  KeyValuePair() = default;
  KeyValuePair(const K& key, const V& value) : key(key), value(value) {}
  bool operator==(const KeyValuePair& other) const { return key == other.key && value == other.value; }
};

// Memory that is not constructed, and that a collective uses by a reference to its storage.
template <typename T>
struct Uninitialized {
  alignas(T) unsigned char storage[sizeof(T)];
  T& Alias() { return *reinterpret_cast<T*>(this); }
};

enum CacheLoadModifier { LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE };
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
enum WarpLoadAlgorithm { WARP_LOAD_DIRECT, WARP_LOAD_STRIPED, WARP_LOAD_VECTORIZE, WARP_LOAD_TRANSPOSE };
enum WarpStoreAlgorithm { WARP_STORE_DIRECT, WARP_STORE_STRIPED, WARP_STORE_VECTORIZE, WARP_STORE_TRANSPOSE };
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

static inline unsigned RowMajorTid(int, int, int) { return loom_cuda::thread_rank(); }
static inline unsigned LaneId() { return loom_cuda::lane(); }
static inline unsigned WarpId() { return loom_cuda::thread_rank() / 32; }
static inline void CTA_SYNC() { __syncthreads(); }
static inline void WARP_SYNC(unsigned mask) { __syncwarp(mask); }
// Lanes of the group of `N` with this number.
template <int N>
static inline unsigned WarpMask(unsigned group) {
  return N == 32 ? 0xffffffffU : ((1U << N % 32) - 1) << group * N;
}
// Among `N` lanes in a row; past the first or the last lane, a lane keeps its own.
template <int N, typename T>
static inline T ShuffleUp(T value, int offset, int first, unsigned mask) {
  const int own = static_cast<int>(loom_cuda::lane()) % N;
  return __shfl_sync(mask, value, own - offset < first ? own : own - offset, N);
}
template <int N, typename T>
static inline T ShuffleDown(T value, int offset, int last, unsigned mask) {
  const int own = static_cast<int>(loom_cuda::lane()) % N;
  return __shfl_sync(mask, value, own + offset > last ? own : own + offset, N);
}
template <int N, typename T>
static inline T ShuffleIndex(T value, int source, unsigned mask) {
  return __shfl_sync(mask, value, source, N);
}
template <int N>
struct Log2 {
  enum { VALUE = N <= 1 ? 0 : 1 + Log2<(N + 1) / 2>::VALUE };
};
template <>
struct Log2<1> {
  enum { VALUE = 0 };
};
template <int N>
struct PowerOfTwo {
  enum { VALUE = (N & (N - 1)) == 0 };
};
template <int N>
struct Int2Type {
  enum { VALUE = N };
};
template <typename T>
static inline T BFE(T value, unsigned first, unsigned count) {
  return first >= 8 * sizeof(T) ? T(0)
                                : (value >> first) & (count >= 8 * sizeof(T) ? ~T(0) : (T(1) << count) - 1);
}
template <typename N, typename D>
static constexpr N DivideAndRoundUp(N n, D d) {
  return n / d + (n % d != 0 ? 1 : 0);
}
template <CacheLoadModifier = LOAD_DEFAULT, typename I>
static inline auto ThreadLoad(I at) {
  return *at;
}
template <CacheStoreModifier = STORE_DEFAULT, typename I, typename T>
static inline void ThreadStore(I at, T value) {
  *at = value;
}

// Two buffers, of which one holds what counts.
template <typename T>
struct DoubleBuffer {
  T* d_buffers[2] = {nullptr, nullptr};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

}  // namespace cub
