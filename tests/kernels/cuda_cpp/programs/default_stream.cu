// The default stream waits for blocking streams, and they for it: null where all went well.
#include <cuda_runtime.h>

#include <string>

static std::string failure;
#define HOLDS(condition) \
  if (!(condition) && failure.empty()) failure = #condition
#define OK(call) HOLDS((call) == cudaSuccess)

__global__ void write_slowly(float* x, float value, int rounds) {
  float sum = 0;
  for (int i = 0; i < rounds; ++i) sum = sum * 0.5f + value;
  x[threadIdx.x] = sum;
}
__global__ void copy(float* to, const float* from) { to[threadIdx.x] = from[threadIdx.x]; }

constexpr int kThreads = 32, kSlow = 4 << 20;

static float last(const float* x) {
  float value = 0;
  OK(cudaMemcpy(&value, x + kThreads - 1, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

extern "C" const char* order() {
  failure.clear();
  cudaStream_t stream = nullptr, other = nullptr, apart = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamDefault));
  OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  unsigned flags = 7;
  OK(cudaStreamGetFlags(stream, &flags));
  HOLDS(flags == cudaStreamDefault);
  OK(cudaStreamGetFlags(apart, &flags));
  HOLDS(flags == cudaStreamNonBlocking);
  float *x = nullptr, *y = nullptr;
  OK(cudaMalloc(&x, kThreads * sizeof(float)));
  OK(cudaMalloc(&y, kThreads * sizeof(float)));

  // A copy that waits, behind a blocking stream.
  write_slowly<<<1, kThreads, 0, stream>>>(x, 1, kSlow);
  HOLDS(last(x) == 2);
  // A kernel on the default stream, and another blocking stream behind that.
  write_slowly<<<1, kThreads, 0, stream>>>(x, 2, kSlow);
  copy<<<1, kThreads>>>(y, x);
  copy<<<1, kThreads, 0, other>>>(x, y);
  OK(cudaStreamSynchronize(other));
  HOLDS(last(x) == 4 && last(y) == 4);
  // The host waits for the default stream alone.
  write_slowly<<<1, kThreads, 0, stream>>>(x, 3, kSlow);
  OK(cudaStreamSynchronize(nullptr));
  OK(cudaMemcpyAsync(y, x, kThreads * sizeof(float), cudaMemcpyDeviceToDevice, apart));
  OK(cudaStreamSynchronize(apart));
  HOLDS(last(y) == 6);
  // An event of the default stream covers the others.
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  write_slowly<<<1, kThreads, 0, stream>>>(x, 4, kSlow);
  OK(cudaEventRecord(event, nullptr));
  OK(cudaStreamWaitEvent(apart, event, 0));
  OK(cudaMemcpyAsync(y, x, kThreads * sizeof(float), cudaMemcpyDeviceToDevice, apart));
  OK(cudaStreamSynchronize(apart));
  HOLDS(last(y) == 8);

  OK(cudaFree(x));
  OK(cudaFree(y));
  for (const cudaStream_t each : {stream, other, apart}) OK(cudaStreamDestroy(each));
  return failure.empty() ? nullptr : failure.c_str();
}
