// What the threads of a block do together: each kernel writes what a test works out by itself.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void row_sums(const float* x, float* y, int n) {
  extern __shared__ float part[];
  part[threadIdx.x] = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) part[threadIdx.x] += x[blockIdx.x * n + i];
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

__global__ void softmax_of_warps(const float* x, float* y) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  float largest = x[at];
  for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, o));
  const float e = __expf(x[at] - largest);
  float sum = e;
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  y[at] = __fdividef(e, sum);
}

template <int kTile>
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float rows[kTile][kTile], columns[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    rows[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0;
    columns[threadIdx.y][threadIdx.x] = column < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += rows[threadIdx.y][i] * columns[i][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

__global__ void histogram(const int* x, int* counts, int n, int num_bins) {
  extern __shared__ int bins[];
  for (int i = threadIdx.x; i < num_bins; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < num_bins; i += blockDim.x) atomicAdd(&counts[i], bins[i]);
}

// The forms of the barrier, shuffles with a width, votes, matches, reductions: a row of the result each.
__global__ void collectives(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x, own = x[t];
  const unsigned all = 0xffffffff;
  y[0 * n + t] = __syncthreads_count(own > 0);
  y[1 * n + t] = __syncthreads_and(own > -100);
  y[2 * n + t] = __syncthreads_or(own > 99);
  y[3 * n + t] = __shfl_sync(all, own, 3, 8);
  y[4 * n + t] = __shfl_up_sync(all, own, 2, 16);
  y[5 * n + t] = __shfl_down_sync(all, own, 3, 8);
  y[6 * n + t] = __shfl_xor_sync(all, own, 5);
  y[7 * n + t] = (int)__ballot_sync(all, own > 0);
  y[8 * n + t] = __any_sync(all, own > 98);
  y[9 * n + t] = __all_sync(all, own > -99);
  y[10 * n + t] = (int)__match_any_sync(all, own & 3);
  y[11 * n + t] = __reduce_add_sync(all, own);
  y[12 * n + t] = __reduce_min_sync(all, own);
  y[13 * n + t] = __reduce_max_sync(all, own);
  y[14 * n + t] = (int)__reduce_xor_sync(all, (unsigned)own);
  __syncwarp();
  // Two halves of a warp at two places, each with its own mask.
  if (t % 32 < 16) {
    y[15 * n + t] = __shfl_xor_sync(0x0000ffff, own, 1);
  } else {
    y[15 * n + t] = __shfl_xor_sync(0xffff0000, own, 2);
  }
  y[16 * n + t] = 0;
  if (own > 0) y[16 * n + t] = (int)__activemask();
  y[17 * n + t] = (int)__shfl_sync(all, (long long)own << 33, 7) == 0;
}

// The same of inline PTX, with predicates beside values: a row of the result each.
__global__ void collectives_of_ptx(const int* x, unsigned* y) {
  const int t = threadIdx.x, n = blockDim.x, own = x[t];
  unsigned found;
  int at = 0;
  const auto write = [&] { y[at++ * n + t] = found; };
  float value = own, other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(5));
  found = (unsigned)(int)other;
  write();
#define SHUFFLE(mode, by, segments)                                         \
  asm volatile(                                                             \
      "{ .reg .pred p; shfl.sync." mode ".b32 %0|p, %1, %2, %3, -1;\n\t"    \
      "@!p add.s32 %0, %0, 1000; }"                                         \
      : "=r"(found)                                                         \
      : "r"(own), "r"(by), "r"(segments));                                  \
  write()
  SHUFFLE("up", 2, 0x1000);
  SHUFFLE("down", 3, 0x181f);
  SHUFFLE("idx", 3, 0x181f);
  SHUFFLE("idx", 20, 0x000f);
  asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
               : "=r"(found)
               : "r"(own), "r"(0xffffffff));
  write();
#define VOTE(kind, least)                                                                          \
  asm volatile("{ .reg .pred p, q; setp.ge.s32 p, %1, %2; vote.sync." kind ".pred q, !p, -1; "       \
               "selp.u32 %0, 1, 0, q; }"                                                           \
               : "=r"(found)                                                                       \
               : "r"(own), "r"(least));                                                            \
  write()
  VOTE("all", 100);
  VOTE("any", 0);
  VOTE("uni", -100);
  VOTE("uni", 0);
  asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(found) : "r"(own & 3), "r"(-1));
  write();
  asm volatile("{ .reg .pred p; match.all.sync.b64 %0|p, %1, -1; @!p mov.b32 %0, 7; }"
               : "=r"(found)
               : "l"((long long)own >> 20));
  write();
  asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(found) : "r"(own));
  write();
  asm volatile("redux.sync.xor.b32 %0, %1, 0xffffffff;" : "=r"(found) : "r"(own));
  write();
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
  found = 0;
  if (own > 0) asm volatile("activemask.b32 %0;" : "=r"(found));
  write();
}

__global__ void groups(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x, own = x[t];
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  y[0 * n + t] = (int)tile.thread_rank();
  y[1 * n + t] = tile.shfl(own, 2);
  y[2 * n + t] = cg::reduce(tile, own, cg::plus<int>());
  y[3 * n + t] = (int)tile.ballot(own > 0);
  y[4 * n + t] = (int)tile.meta_group_rank();
  block.sync();
  y[5 * n + t] = -1;
  if (own > 0) {
    const cg::coalesced_group those = cg::coalesced_threads();
    y[5 * n + t] = (int)those.thread_rank();
    if (those.thread_rank() == 0) atomicAdd(&y[6 * n], (int)those.num_threads());
  }
  // Of a tile of a tile; and one thread of each tile adds its rank.
  const auto part = cg::tiled_partition<8>(cg::tiled_partition<32>(block));
  y[7 * n + t] = (int)(10 * part.meta_group_size() + part.meta_group_rank());
  cg::invoke_one(part, [&] { atomicAdd(&y[8 * n], 1); });
}

// Some threads end before others wait.
__global__ void early_exits(int* y, int n) {
  const int t = threadIdx.x;
  if (t >= n) return;
  y[t] = t;
  __syncthreads();
  y[t] += y[n - 1 - t];
}

// In the style of published farthest point sampling: no barrier between the last read of a round and the first
// write of the next one.
__global__ void reused_shared_memory(const int* values, int* y, int rounds) {
  __shared__ int best[64];
  const int t = threadIdx.x;
  for (int round = 0; round < rounds; ++round) {
    best[t] = values[t] + round;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
      if (t < half) best[t] = max(best[t], best[t + half]);
      __syncthreads();
    }
    y[64 * round + t] = best[0];
  }
}

__global__ void never_meet(int* y) {
  if (threadIdx.x < 16) {
    __syncwarp(0xffffffff);
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1;
}

// Conditional barriers: the first block does not wait, the second does.
__global__ void sometimes_waits(int* y) {
  __shared__ int last;
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x % 2 == 1) {
    if (threadIdx.x == blockDim.x - 1) last = blockIdx.x;
    __syncthreads();
    y[at] = last;
  } else {
    y[at] = -1;
  }
}

// clock() of a kernel and clock64() are one clock, which the C library's is not.
__global__ void clocks(int* near) {
  const long long wide = clock64(), narrow = clock();
  near[0] = narrow >= wide && narrow - wide < 1000000000;
}
