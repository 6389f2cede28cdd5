// Races on shared memory, each beside its repaired twin.

__global__ void no_barrier(const int* v, int* out) {
  __shared__ int s[64], unrelated;
  const int t = threadIdx.x;
  s[t] = v[t];
  int sum = 0;
  for (int k = 0; k < 32; ++k) sum += s[k];  // no_barrier
  out[t] = sum;
}
__global__ void barrier(const int* v, int* out) {
  __shared__ int s[64], unrelated;
  const int t = threadIdx.x;
  s[t] = v[t];
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < 32; ++k) sum += s[k];
  out[t] = sum;
}

__global__ void no_second_barrier(const int* v, int* out) {
  extern __shared__ int d[];
  const int t = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    d[t] = v[t] + round;  // no_second_barrier
    __syncthreads();
    out[t] = d[0];
  }
}
__global__ void second_barrier(const int* v, int* out) {
  extern __shared__ int d[];
  const int t = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    d[t] = v[t] + round;
    __syncthreads();
    out[t] = d[0];
    __syncthreads();
  }
}

__global__ void warp_in_step(const int* v, int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  s[t] = v[t];
  __syncthreads();
  if (t < 32) {
    for (int half = 32; half > 0; half /= 2) {
      s[t] += s[t + half];  // warp_in_step
      __syncwarp();
    }
  }
  if (t == 0) out[0] = s[0];
}
__global__ void warp_in_turns(const int* v, int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  s[t] = v[t];
  __syncthreads();
  if (t < 32) {
    for (int half = 32; half > 0; half /= 2) {
      const int sum = s[t] + s[t + half];
      __syncwarp();
      s[t] = sum;
      __syncwarp();
    }
  }
  if (t == 0) out[0] = s[0];
}

__global__ void plain_count(const int* v, int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  count += v[threadIdx.x] > 8;  // plain_count
  __syncthreads();
  out[threadIdx.x] = count;
}
__global__ void atomic_count(const int* v, int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (v[threadIdx.x] > 8) atomicAdd(&count, 1);
  __syncthreads();
  out[threadIdx.x] = count;
}

// Bytes of one word, each its own thread's; and a flag that all set alike.
struct Pair {
  char left, right;
};
__global__ void neighbours(const int* v, int* out) {
  __shared__ Pair pairs[32];
  __shared__ int is_any;
  const int t = threadIdx.x;
  if (t == 0) is_any = 0;
  __syncthreads();
  (t % 2 == 0 ? pairs[t / 2].left : pairs[t / 2].right) = static_cast<char>(t);
  if (v[t] >= 0) is_any = 1;
  out[t] = t % 2 == 0 ? pairs[t / 2].left : pairs[t / 2].right;
  __syncthreads();
  out[t] += is_any;
}

// Shuffles order as well; another block starts anew.
__global__ void by_shuffles(const int* v, int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  s[t] = v[t];
  const int next = __shfl_down_sync(0xffffffff, v[t], 1);
  if (t % 32 < 31) out[t] = next - s[t + 1];
}

// Each byte of shared memory is looked at for itself.
__global__ void odd_element(const int* v, int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = v[threadIdx.x];
  if (threadIdx.x == 63) out[0] = s[3];  // odd_element
}
__global__ void last_byte(const int* v, int* out) {
  __shared__ char s[64];
  s[threadIdx.x] = static_cast<char>(v[threadIdx.x]);
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
  if (threadIdx.x == 63) s[7] = 9;  // last_byte
}
__global__ void zeroed_beside_atomics(const int* v, int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  atomicAdd(&count, v[threadIdx.x] > 8);  // zeroed_beside_atomics
  __syncthreads();
  out[threadIdx.x] = count;
}
