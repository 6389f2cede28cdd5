// A barrier in shared memory between warps that write and warps that read; a pipeline of one thread.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

// Warp 0 fills the two halves of a buffer by turns, warp 1 adds them up.
__global__ void hands_over(const int* x, int* y, int rounds) {
  __shared__ Barrier full[2], empty[2];
  __shared__ int buffer[2][32];
  if (threadIdx.x < 2) {
    init(&full[threadIdx.x], 64);
    init(&empty[threadIdx.x], 64);
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < rounds; ++i) {
      if (i >= 2) empty[i % 2].arrive_and_wait();
      cuda::memcpy_async(&buffer[i % 2][lane], &x[i * 32 + lane], cuda::aligned_size_t<4>(4), full[i % 2]);
      (void)full[i % 2].arrive();
    }
  } else {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
      full[i % 2].wait(full[i % 2].arrive());
      sum += buffer[i % 2][31 - lane];
      (void)empty[i % 2].arrive();
    }
    y[lane] = sum;
  }
}

__global__ void copies(const int* x, int* y, int stages) {
  __shared__ int buffer[4][32];
  auto pipe = cuda::make_pipeline();
  for (int i = 0; i < stages; ++i) {
    pipe.producer_acquire();
    cuda::memcpy_async(&buffer[i % 4][threadIdx.x], &x[i * 32 + threadIdx.x], sizeof(int), pipe);
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    __syncthreads();
    y[i * 32 + threadIdx.x] = buffer[i % 4][31 - threadIdx.x];
    pipe.consumer_release();
  }
}
