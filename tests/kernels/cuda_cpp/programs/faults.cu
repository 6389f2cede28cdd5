// Each kernel does something that it must not; its line is in the test's expectation.
#include <assert.h>

__global__ void writes_behind(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i % n] * 2;  // writes_behind
}

__global__ void reads_before(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  y[i] = x[i - 1];  // reads_before
}

__global__ void reads_null(const float* x, float* y, int n) {
  const float* none = n > 0 ? nullptr : x;
  y[threadIdx.x] = none[threadIdx.x];  // reads_null
}

__global__ void writes_behind_shared(const float* x, float* y, int n) {
  extern __shared__ float part[];
  part[threadIdx.x + n] = x[threadIdx.x];  // writes_behind_shared
  __syncthreads();
  y[threadIdx.x] = part[threadIdx.x];
}

__global__ void writes_behind_array(const float* x, float* y, int n) {
  __shared__ float part[8][8];
  part[0][threadIdx.x + n] = x[threadIdx.x];  // writes_behind_array
  __syncthreads();
  y[threadIdx.x] = part[0][threadIdx.x];
}

__global__ void by_table(const float* const* table, float* y, int n) {
  y[threadIdx.x] = table[1][threadIdx.x + n];  // by_table
}

__global__ void asserts(const float* x, float* y, int n) {
  assert(threadIdx.x < 3 && "few threads");
  y[threadIdx.x] = x[threadIdx.x];
}

__global__ void traps(const float* x, float* y, int n) {
  if (x[threadIdx.x] > 1e9f) __trap();
  y[threadIdx.x] = 1;
}

__global__ void divides(const float* x, float* y, int n) {
  y[threadIdx.x] = 8 / (n - 2);  // divides
}

__global__ void prints(const float* x, float* y, int n) {
  if (threadIdx.x == 0) printf("n is %d\n", n);
}
