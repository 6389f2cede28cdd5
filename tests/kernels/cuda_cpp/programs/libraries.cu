// Kernels in the style of published ones: a selective scan and a causal convolution over items that each thread
// holds, by cub, static switches and vector loads; a rasteriser of tiles.
#include <cub/cub.cuh>
#include <cuda/std/utility>

template <int kThreads_, int kItems_, bool kIsEven_>
struct ScanTraits {
  static constexpr int kThreads = kThreads_, kItems = kItems_, kChunk = kThreads * kItems;
  static constexpr bool kIsEven = kIsEven_;
  using Load = cub::BlockLoad<float, kThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<float2, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  using Store = cub::BlockStore<float, kThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  static constexpr int kBytes = sizeof(typename Scan::TempStorage);
};

// (a1, b1), (a2, b2): the composition of h -> a h + b.
struct Compose {
  __device__ __forceinline__ float2 operator()(const float2& first, const float2& second) const {
    return make_float2(second.x * first.x, second.x * first.y + second.y);
  }
};

struct CarryOn {
  float2 running;
  __device__ CarryOn(float2 running) : running(running) {}
  __device__ float2 operator()(float2 all) {
    const float2 before = running;
    running = Compose()(running, all);
    return before;
  }
};

struct ScanParams {
  const float *a, *b;
  float* out;
  int length;
};

template <typename Traits>
__device__ void scan_row(const ScanParams& params) {
  extern __shared__ char smem[];
  auto& storage = *reinterpret_cast<typename Traits::Scan::TempStorage*>(smem);
  float2* const carried = reinterpret_cast<float2*>(smem + Traits::kBytes);
  const int row = blockIdx.x * params.length;
  for (int at = 0; at < params.length; at += Traits::kChunk) {
    float a[Traits::kItems], b[Traits::kItems];
    __shared__ typename Traits::Load::TempStorage loading;
    if constexpr (Traits::kIsEven) {
      typename Traits::Load(loading).Load(params.a + row + at, a);
      typename Traits::Load(loading).Load(params.b + row + at, b);
    } else {
      typename Traits::Load(loading).Load(params.a + row + at, a, params.length - at, 1.f);
      typename Traits::Load(loading).Load(params.b + row + at, b, params.length - at, 0.f);
    }
    float2 pairs[Traits::kItems];
#pragma unroll
    for (int i = 0; i < Traits::kItems; ++i) pairs[i] = make_float2(a[i], b[i]);
    CarryOn carry(at > 0 && threadIdx.x % 32 == 0 ? carried[0] : make_float2(1.f, 0.f));
    typename Traits::Scan(storage).InclusiveScan(pairs, pairs, Compose(), carry);
    if (threadIdx.x == 0) carried[0] = carry.running;
    float out[Traits::kItems];
#pragma unroll
    for (int i = 0; i < Traits::kItems; ++i) out[i] = pairs[i].y;
    __shared__ typename Traits::Store::TempStorage storing;
    if constexpr (Traits::kIsEven) {
      typename Traits::Store(storing).Store(params.out + row + at, out);
    } else {
      typename Traits::Store(storing).Store(params.out + row + at, out, params.length - at);
    }
    __syncthreads();
  }
}

#define BOOL_SWITCH(condition, NAME, ...)   \
  [&] {                                     \
    if (condition) {                        \
      constexpr static bool NAME = true;    \
      return __VA_ARGS__();                 \
    } else {                                \
      constexpr static bool NAME = false;   \
      return __VA_ARGS__();                 \
    }                                       \
  }()

__global__ void __launch_bounds__(32) selective_scan(const float* a, const float* b, float* out, int length) {
  const ScanParams params{a, b, out, length};
  BOOL_SWITCH(length % 128 == 0, kIsEven, [&] { scan_row<ScanTraits<32, 4, kIsEven>>(params); });
}

// Each thread convolves 4 values that it loads as 16 bytes, and gets the last 3 of the thread before it.
template <int kWidth>
__global__ void causal_convolution(const float* x, const float* weight, float* out, int channels, int length) {
  __shared__ uint4 exchange[64];
  const int channel = blockIdx.x % channels, row = blockIdx.x * length;
  float w[kWidth];
  for (int i = 0; i < kWidth; ++i) w[i] = weight[channel * kWidth + i];
  if (threadIdx.x == 0) exchange[blockDim.x - 1] = make_uint4(0, 0, 0, 0);
  for (int at = 0; at < length; at += 4 * blockDim.x) {
    float values[8] = {0};
    const int own = at + 4 * threadIdx.x;
    if (own < length) reinterpret_cast<uint4*>(values)[1] = *reinterpret_cast<const uint4*>(x + row + own);
    __syncthreads();
    if (threadIdx.x < blockDim.x - 1) exchange[threadIdx.x] = reinterpret_cast<uint4*>(values)[1];
    __syncthreads();
    reinterpret_cast<uint4*>(values)[0] = exchange[threadIdx.x > 0 ? threadIdx.x - 1 : blockDim.x - 1];
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) exchange[threadIdx.x] = reinterpret_cast<uint4*>(values)[1];
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = 0;
      for (int k = 0; k < kWidth; ++k) sums[i] += w[k] * values[4 + i - (kWidth - k - 1)];
    }
    if (own < length) *reinterpret_cast<float4*>(out + row + own) = make_float4(sums[0], sums[1], sums[2], sums[3]);
  }
}

// A tile of 16 x 16 pixels loads its splats in batches; a pixel stops when nothing shines through.
__global__ void rasterise(const float2* centers, const float4* colors, const float* widths, float4* image, int count,
                          int width, int height) {
  __shared__ float2 at[256];
  __shared__ float4 color[256];
  __shared__ float scale[256];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  const int rank = threadIdx.y * 16 + threadIdx.x;
  const bool is_inside = x < width && y < height;
  bool is_done = !is_inside;
  float through = 1;
  float3 sum = make_float3(0, 0, 0);
  for (int first = 0; first < count; first += 256) {
    if (__syncthreads_count(is_done) >= 256) break;
    if (first + rank < count) {
      at[rank] = centers[first + rank];
      color[rank] = colors[first + rank];
      scale[rank] = widths[first + rank];
    }
    __syncthreads();
    const int batch = min(256, count - first);
    for (int i = 0; !is_done && i < batch; ++i) {
      const float dx = at[i].x - x, dy = at[i].y - y;
      const float alpha = fminf(0.99f, color[i].w * __expf(-(dx * dx + dy * dy) / (2 * scale[i] * scale[i])));
      if (alpha < 1.f / 255) continue;
      sum.x += color[i].x * alpha * through;
      sum.y += color[i].y * alpha * through;
      sum.z += color[i].z * alpha * through;
      through *= 1 - alpha;
      is_done = through < 1e-4f;
    }
  }
  if (is_inside) image[y * width + x] = make_float4(sum.x, sum.y, sum.z, through);
}

// Sums of a row by cub, in a block and in warps.
__global__ void reductions(const float* x, float* y, int n) {
  using Reduce = cub::BlockReduce<float, 128>;
  using Warp = cub::WarpReduce<float>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ typename Warp::TempStorage warps[4];
  float own = 0;
  for (int i = threadIdx.x; i < n; i += 128) own += x[blockIdx.x * n + i];
  const float sum = Reduce(storage).Sum(own);
  const float largest = Warp(warps[threadIdx.x / 32]).Reduce(own, cub::Max());
  if (threadIdx.x == 0) y[2 * blockIdx.x] = sum;
  if (threadIdx.x == 0) y[2 * blockIdx.x + 1] = largest;
}

__global__ void prefix_sums(const int* x, int* y) {
  using Scan = cub::BlockScan<int, 64>;
  __shared__ typename Scan::TempStorage storage;
  int items[3], all;
  cub::LoadDirectBlocked(threadIdx.x, x + blockIdx.x * 192, items);
  Scan(storage).ExclusiveSum(items, items, all);
  cub::StoreDirectBlocked(threadIdx.x, y + blockIdx.x * 192, items);
}

// Sums of what stands behind each value: rows of the block, which its first warp sums and then scans.
__global__ void sums_behind(const float* x, float* y) {
  using Layout = cub::BlockRakingLayout<float, 128>;
  __shared__ Layout::TempStorage storage;
  *Layout::PlacementPtr(storage, threadIdx.x) = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < Layout::RAKING_THREADS) {
    float* row = Layout::RakingPtr(storage, threadIdx.x);
    float own = 0;
    for (int i = 0; i < Layout::SEGMENT_LENGTH; ++i) own += row[i];
    const unsigned all = cub::WarpMask<32>(0);
    float behind = own;
    for (int step = 1; step < 32; step *= 2) {
      const float other = cub::ShuffleDown<32>(behind, step, 31, all);
      if (threadIdx.x + step < 32) behind += other;
    }
    float sum = cub::ShuffleDown<32>(behind, 1, 31, all);
    if (threadIdx.x == 31) sum = 0;
    for (int i = Layout::SEGMENT_LENGTH - 1; i >= 0; --i) {
      const float value = row[i];
      row[i] = sum;
      sum += ::cuda::std::forward<const float&>(value);
    }
  }
  __syncthreads();
  y[threadIdx.x] = *Layout::PlacementPtr(storage, threadIdx.x);
}
