// Lambdas of the device in the configuration and the arguments of a launch, and NULL in these.
#include <cstdio>

template <typename F>
__global__ void apply(float* data, int n, F function, const float* added) {
  const int i = threadIdx.x;
  if (i < n) data[i] = function(data[i]) + (added == nullptr ? 0.5f : added[i]);
}

template <typename F>
int rounded(int n, F function) {
  return function(n);
}

int main() {
  float host[32], *data;
  for (int i = 0; i < 32; ++i) host[i] = i;
  cudaMalloc(&data, sizeof(host));
  cudaMemcpy(data, host, sizeof(host), cudaMemcpyHostToDevice);
  const float scale = 3;
  apply<<<1, rounded(31, [=] __host__ __device__(int n) { return (n + 31) / 32 * 32; })>>>(
      data, 32, [=] __device__(float value) { return value * scale; }, (const float*)NULL);
  cudaMemcpy(host, data, sizeof(host), cudaMemcpyDeviceToHost);
  std::printf("%g %g\n", host[1], host[31]);
}
