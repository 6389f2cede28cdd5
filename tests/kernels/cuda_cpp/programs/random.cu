// What cuRAND's generators give.
#include <curand_kernel.h>

__global__ void xorwow(unsigned* out, unsigned long long seed) {
  curandState state;
  curand_init(seed, threadIdx.x, 0, &state);
  out[threadIdx.x] = curand(&state);
}

__global__ void philox(float* uniform, float* normal, unsigned long long seed) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, threadIdx.x, 0, &state);
  reinterpret_cast<float4*>(uniform)[threadIdx.x] = curand_uniform4(&state);
  curand_init(seed, threadIdx.x, 0, &state);
  reinterpret_cast<float4*>(normal)[threadIdx.x] = curand_normal4(&state);
}

template <typename State>
__device__ int differ(unsigned long long skipped) {
  State walked, jumped, skips;
  curand_init(7, 3, 0, &walked);
  curand_init(7, 3, skipped, &jumped);
  curand_init(7, 1, 0, &skips);
  for (unsigned long long i = 0; i < skipped; ++i) curand(&walked);
  skipahead(skipped / 2, &skips);
  skipahead_sequence(2, &skips);
  skipahead(skipped - skipped / 2, &skips);
  int count = 0;
  for (int i = 0; i < 9; ++i) {
    const unsigned next = curand(&walked);
    count += next != curand(&jumped) || next != curand(&skips);
  }
  return count;
}
__global__ void skips(int* count) {
  count[0] = differ<curandState>(1001);
  count[1] = differ<curandStatePhilox4_32_10_t>(1003);
  curandStatePhilox4_32_10_t one, four;
  for (int start = 0; start < 4; ++start) {
    curand_init(5, 1, start, &one);
    curand_init(5, 1, start, &four);
    const uint4 all = curand4(&four);
    count[2] += curand(&one) != all.x || curand(&one) != all.y || curand(&one) != all.z || curand(&one) != all.w;
    count[2] += curand(&one) != curand(&four);
  }
}

template <typename State>
__global__ void distributions(double* out, int n, double mean) {
  State state;
  curand_init(1, blockIdx.x * blockDim.x + threadIdx.x, 0, &state);
  for (int i = 0; i < n; ++i) {
    double* const row = out + 7 * (static_cast<long long>(blockIdx.x * blockDim.x + threadIdx.x) * n + i);
    row[0] = curand_uniform(&state);
    row[1] = curand_uniform_double(&state);
    row[2] = curand_normal(&state);
    row[3] = curand_normal_double(&state);
    row[4] = log(curand_log_normal(&state, 1.0f, 0.5f));
    row[5] = curand_poisson(&state, mean);
    row[6] = curand_normal2(&state).y;
  }
}
