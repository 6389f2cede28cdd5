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

__global__ void divides_smallest(const float* x, int* y, int n) {
  const int smallest = -2147483647 - 1;
  const long long wide = -9223372036854775807LL - 1;
  y[threadIdx.x * 4] = (smallest + int(x[0])) / n;
  y[threadIdx.x * 4 + 1] = (smallest + int(x[0])) % n;
  y[threadIdx.x * 4 + 2] = int((wide + int(x[0])) / n >> 32);
  y[threadIdx.x * 4 + 3] = (7 + int(x[0])) / n;
}

// Quotients and rests of all widths, of registers and of memory, after one another so that none is left out.
template <typename T>
__device__ long long* divided(T a, T b, const T* kept, long long* y) {
  volatile T quotient = a / b, rest = (a + 1) % b, other = (a + 2) / kept[threadIdx.x];
  *y++ = quotient, *y++ = rest, *y++ = other, *y++ = a + 3;
  return y;
}

__global__ void divides_by_zero(const float* x, long long* y, int n) {
  const int zero = static_cast<int>(x[0]);
  const long long wide = (1LL << 40) + n;
  const auto kept = reinterpret_cast<const long long*>(x);
  y = divided<int>(n, zero, reinterpret_cast<const int*>(x), y);
  y = divided<unsigned>(n, zero, reinterpret_cast<const unsigned*>(x), y);
  y = divided<unsigned char>(n, zero, reinterpret_cast<const unsigned char*>(x), y);
  y = divided<short>(n, zero, reinterpret_cast<const short*>(x), y);
  y = divided<long long>(n, zero, kept, y);
  y = divided<long long>(-wide, zero, kept, y);
  y = divided<unsigned long long>(wide, zero, reinterpret_cast<const unsigned long long*>(x), y);
}

__device__ __noinline__ float deeper(float* kept, int n) {
  volatile float own[256];
  own[n & 255] = kept[0];
  return n == 0 ? own[0] : deeper(kept, n - 1) + own[n & 255];
}

__global__ void recurses(const float* x, float* y, int n) {
  if (threadIdx.x == 2) __syncthreads();
  y[threadIdx.x] = threadIdx.x == 3 ? deeper(y, n) : 1;
}

__global__ void keeps_much(const float* x, float* y, int n) {
  volatile float own[1 << 20];
  for (int i = 0; i < n; ++i) own[i] = x[0];
  y[threadIdx.x] = own[n - 1];
}

__global__ void prints(const float* x, float* y, int n) {
  if (threadIdx.x == 0) printf("n is %d\n", n);
}

__global__ void writes_far(const float* x, float* y, int n) { y[threadIdx.x + 100000000000LL * n] = x[0]; }
__global__ void adds_behind(const float* x, float* y, int n) {
  atomicAdd(y + 64 * n + threadIdx.x, x[0]);  // adds_behind
}
