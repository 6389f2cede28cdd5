// Races between threads of a block on global memory, and ints that overflow, each beside its repaired twin. Not
// inline, so that each keeps its own lines.

__device__ __noinline__ void adds(const int* v, int* out, int by) {
  out[0] += v[threadIdx.x];  // adds
}
__device__ __noinline__ void adds_by_atomic(const int* v, int* out, int by) { atomicAdd(out, v[threadIdx.x]); }

// Another warp's element, or one of the own warp's.
__device__ __noinline__ void reads_next_behind_barrier(const int* v, int* out, int by) {
  const int t = threadIdx.x, next = (t + by) % blockDim.x;
  out[t] = v[t];
  __syncthreads();
  out[64 + t] = out[next];
}
__device__ __noinline__ void reads_lane_behind_syncwarp(const int* v, int* out, int by) {
  const int t = threadIdx.x, next = t / 32 * 32 + (t + by) % 32;
  out[t] = v[t];
  __syncwarp();
  out[64 + t] = out[next];
}
// Lanes meet, and none of them meets the other warp.
__device__ __noinline__ void reads_warp_behind_syncwarp(const int* v, int* out, int by) {
  const int t = threadIdx.x, next = (t + by) % blockDim.x;
  out[t] = v[t];
  __syncwarp();
  out[64 + t] = out[next];  // reads_warp_behind_syncwarp
}
__device__ __noinline__ void reads_lane_before_syncwarp(const int* v, int* out, int by) {
  const int t = threadIdx.x, next = t / 32 * 32 + (t + by) % 32;
  __syncwarp();
  out[t] = v[t];
  out[64 + t] = out[next];  // reads_lane_before_syncwarp
  __syncwarp();
}
__device__ __noinline__ void by_halves_of_a_warp(const int* v, int* out, int by) {
  const int t = threadIdx.x;
  out[t] = v[t];
  if (t < 16) {
    __syncwarp(0xffff);
    out[64 + t] = out[15 - t];
  }
  __shfl_sync(0xffffffff, t, 0);
  out[128 + t] = out[t / 32 * 32 + 31 - t % 32];
}
__device__ __noinline__ void two_to_one(const int* v, int* out, int by) {
  out[threadIdx.x / 2] = v[threadIdx.x];  // two_to_one
}
__device__ __noinline__ void same_to_one(const int* v, int* out, int by) { out[threadIdx.x / 2] = by; }
__device__ __noinline__ void shorts(const int* v, int* out, int by) {
  const int t = threadIdx.x;
  short* const own = reinterpret_cast<short*>(out);
  own[t] = v[t];
  if (t == 63) own[5] = 9;  // shorts
}
// What each thread changes under a lock, and what the last one adds up.
__device__ __noinline__ void under_a_lock(const int* v, int* out, int by) {
  bool is_done = false;
  while (!is_done) {
    if (atomicCAS(&out[1], 0, 1) == 0) {
      __threadfence();
      out[0] += v[threadIdx.x];
      __threadfence();
      atomicExch(&out[1], 0);
      is_done = true;
    }
  }
}
__device__ __noinline__ void last_thread_adds(const int* v, int* out, int by) {
  out[64 + threadIdx.x] = v[threadIdx.x];
  __threadfence();
  if (atomicAdd(&out[1], 1) == blockDim.x - 1)
    for (int i = 0; i < blockDim.x; ++i) out[0] += out[64 + i];
}

__device__ __noinline__ void product(const int* v, int* out, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = v[(i * by) & 63];  // product
}
__device__ __noinline__ void wide_product(const int* v, int* out, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = v[(static_cast<long long>(i) * by) & 63];
}
__device__ __noinline__ void sum(const int* v, int* out, int by) {
  out[threadIdx.x] = v[(by + 2147483600) & 63];  // sum
}
__device__ __noinline__ void unsigned_sum(const int* v, int* out, int by) {
  out[threadIdx.x] = v[(by + 2147483600U) & 63];
}
__device__ __noinline__ void hashes(const int* v, int* out, int by) {
  out[threadIdx.x] = v[(threadIdx.x * 73856093 ^ by * 1103515245) & 63] + v[((int)threadIdx.x * 19349663) & 63];
}
