// Cooperative groups: the block, tiles of a warp, the lanes that are together, the grid.
#pragma once

#include <utility>

#include "loom_cuda/device.h"

namespace cooperative_groups {

class thread_block {
 public:
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() { return loom_cuda::thread_rank(); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
static inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  static bool is_valid() { return true; }
  static void sync() {
    __syncthreads();
    if (loom_cuda::thread_rank() == 0) {
      const loom_cuda::Wait wait;
      loom_cuda_grid_barrier(loom_cuda::runner);
    }
    __syncthreads();
  }
  static unsigned long long block_rank() {
    return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + gridDim.y * blockIdx.z);
  }
  static unsigned long long num_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
  static unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned long long size() { return num_threads(); }
  static dim3 group_dim() { return gridDim; }
};
static inline grid_group this_grid() { return {}; }

// Lanes of a warp, by their mask.
class coalesced_group {
 public:
  explicit coalesced_group(unsigned mask) : mask_(mask) {}
  void sync() const { __syncwarp(mask_); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__builtin_popcount(mask_ & ((1U << loom_cuda::lane()) - 1)));
  }
  unsigned num_threads() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
  unsigned size() const { return num_threads(); }
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
  template <typename T>
  T shfl(T value, unsigned rank) const {
    return loom_cuda::shuffle(mask_, value, lane_of(rank));
  }
  template <typename T>
  T shfl_up(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return loom_cuda::shuffle(mask_, value, lane_of(rank < delta ? rank : rank - delta));
  }
  template <typename T>
  T shfl_down(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return loom_cuda::shuffle(mask_, value, lane_of(rank + delta < num_threads() ? rank + delta : rank));
  }
  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const {
    const unsigned votes = __ballot_sync(mask_, predicate);
    unsigned packed = 0;
    for (unsigned rank = 0; rank < num_threads(); ++rank) packed |= (votes >> lane_of(rank) & 1) << rank;
    return packed;
  }
  unsigned mask() const { return mask_; }

 private:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    for (; rank > 0 && left != 0; --rank) left &= left - 1;
    return left == 0 ? loom_cuda::lane() : static_cast<unsigned>(__builtin_ctz(left));
  }
  unsigned mask_;
};
static inline coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// `N` threads of a warp in a row, a power of two up to 32.
template <unsigned N, typename Parent = void>
class thread_block_tile {
  static_assert(N > 0 && N <= 32 && (N & (N - 1)) == 0,
                "torch-loom has tiles of up to 32 threads, a power of two");

 public:
  thread_block_tile() = default;
  // Tiles convert whatever their parent group is.
  template <typename Other>
  thread_block_tile(const thread_block_tile<N, Other>&) {}
  static void sync() { __syncwarp(mask()); }
  static unsigned thread_rank() { return loom_cuda::lane() % N; }
  static constexpr unsigned num_threads() { return N; }
  static constexpr unsigned size() { return N; }
  // Among the tiles that its parent was divided into.
  static unsigned meta_group_rank() { return Whole::thread_rank() / N; }
  static unsigned meta_group_size() { return (Whole::num_threads() + N - 1) / N; }
  template <typename T>
  static T shfl(T value, int rank) {
    return __shfl_sync(mask(), value, rank, N);
  }
  template <typename T>
  static T shfl_up(T value, unsigned delta) {
    return __shfl_up_sync(mask(), value, delta, N);
  }
  template <typename T>
  static T shfl_down(T value, unsigned delta) {
    return __shfl_down_sync(mask(), value, delta, N);
  }
  template <typename T>
  static T shfl_xor(T value, unsigned lanes) {
    return __shfl_xor_sync(mask(), value, static_cast<int>(lanes), N);
  }
  static int any(int predicate) { return __any_sync(mask(), predicate); }
  static int all(int predicate) { return __all_sync(mask(), predicate); }
  static unsigned ballot(int predicate) { return __ballot_sync(mask(), predicate) >> first(); }
  template <typename T>
  static unsigned match_any(T value) {
    return __match_any_sync(mask(), value) >> first();
  }
  template <typename T>
  static unsigned match_all(T value, int& are_equal) {
    return __match_all_sync(mask(), value, &are_equal) >> first();
  }
  static unsigned mask() { return (N == 32 ? 0xffffffffU : (1U << N % 32) - 1) << first(); }

 private:
  template <typename Other>
  struct WholeOf {
    using type = thread_block;
  };
  template <unsigned M, typename Other>
  struct WholeOf<thread_block_tile<M, Other>> {
    using type = thread_block_tile<M, Other>;
  };
  using Whole = typename WholeOf<Parent>::type;
  static unsigned first() { return loom_cuda::lane() / N * N; }
};

// Any of the groups of a block.
class thread_group {
 public:
  thread_group(const thread_block&) : mask_(0) {}
  template <typename Lanes>
    requires requires(const Lanes& lanes) { lanes.mask(); }
  thread_group(const Lanes& lanes) : mask_(lanes.mask()) {}
  void sync() const { is_block() ? thread_block::sync() : lanes().sync(); }
  unsigned long long thread_rank() const {
    return is_block() ? thread_block::thread_rank() : lanes().thread_rank();
  }
  unsigned long long num_threads() const {
    return is_block() ? thread_block::num_threads() : lanes().num_threads();
  }
  unsigned long long size() const { return num_threads(); }

 private:
  friend thread_group tiled_partition(const thread_group& parent, unsigned n);
  bool is_block() const { return mask_ == 0; }
  coalesced_group lanes() const { return coalesced_group(mask_); }
  unsigned mask_;  // of its lanes; 0: it is the whole block
};

template <unsigned N, typename Parent>
static inline thread_block_tile<N, Parent> tiled_partition(const Parent&) {
  return {};
}
// Its threads in a row, `n` a tile.
static inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned n) {
  const unsigned first = parent.thread_rank() / n * n;
  unsigned mask = 0, rank = 0;
  for (unsigned left = parent.mask(); left != 0; left &= left - 1, ++rank)
    if (rank / n == first / n) mask |= left & (0 - left);
  return coalesced_group(mask);
}
inline thread_group tiled_partition(const thread_group& parent, unsigned n) {
  return tiled_partition(parent.is_block() ? coalesced_group(thread_block_tile<32>::mask()) : parent.lanes(),
                         n);
}
template <typename Group>
static inline coalesced_group binary_partition(const Group& group, bool predicate) {
  const unsigned mask = group.mask(), votes = __ballot_sync(mask, predicate);
  return coalesced_group(predicate ? votes : mask & ~votes);
}
// Those of the group that have the same label.
template <typename Group, typename Label>
static inline coalesced_group labeled_partition(const Group& group, Label label) {
  return coalesced_group(__match_any_sync(group.mask(), label));
}
template <typename Group>
static inline void sync(const Group& group) {
  group.sync();
}
template <typename Group>
static inline unsigned thread_rank(const Group& group) {
  return static_cast<unsigned>(group.thread_rank());
}

// One thread of the group calls f; invoke_one_broadcast() returns its result to all.
template <typename Group, typename F, typename... A>
static inline void invoke_one(const Group& group, F&& f, A&&... given) {
  if (group.thread_rank() == 0) std::forward<F>(f)(std::forward<A>(given)...);
}
template <typename Group, typename F, typename... A>
static inline auto invoke_one_broadcast(const Group& group, F&& f, A&&... given) {
  decltype(std::forward<F>(f)(std::forward<A>(given)...)) result{};
  if (group.thread_rank() == 0) result = std::forward<F>(f)(std::forward<A>(given)...);
  return group.shfl(result, 0);
}

template <typename T>
using plus = loom_cuda::Add;
template <typename T>
using less = loom_cuda::Least;
template <typename T>
using greater = loom_cuda::Greatest;
template <typename T>
using bit_and = loom_cuda::And;
template <typename T>
using bit_or = loom_cuda::Or;
template <typename T>
using bit_xor = loom_cuda::Xor;
template <typename Group, typename T, typename Op>
static inline T reduce(const Group& group, T value, Op) {
  return loom_cuda::reduce<Op>(group.mask(), value);
}

// Sums over the group's threads up to this one, or before it.
template <typename Group, typename T, typename Op>
static inline T inclusive_scan(const Group& group, T value, Op op) {
  for (unsigned delta = 1; delta < group.num_threads(); delta *= 2) {
    const T other = group.shfl_up(value, delta);
    if (group.thread_rank() >= delta) value = op(other, value);
  }
  return value;
}
template <typename Group, typename T>
static inline T inclusive_scan(const Group& group, T value) {
  return inclusive_scan(group, value, loom_cuda::Add());
}
template <typename Group, typename T, typename Op>
static inline T exclusive_scan(const Group& group, T value, Op op) {
  const T sum = group.shfl_up(inclusive_scan(group, value, op), 1);
  return group.thread_rank() == 0 ? T() : sum;
}
template <typename Group, typename T>
static inline T exclusive_scan(const Group& group, T value) {
  return exclusive_scan(group, value, loom_cuda::Add());
}

// Copies that the group makes together; they are done when the group has waited.
template <typename Group, typename T, typename U, typename S>
static inline void memcpy_async(const Group& group, T* to, const U* from, S bytes) {
  for (size_t at = group.thread_rank(); at < static_cast<size_t>(bytes); at += group.num_threads())
    reinterpret_cast<char*>(to)[at] = reinterpret_cast<const char*>(from)[at];
}
template <typename Group>
static inline void wait(const Group& group) {
  group.sync();
}

}  // namespace cooperative_groups
