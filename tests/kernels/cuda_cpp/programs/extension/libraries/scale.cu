// Kernels that another source launches by their addresses, and a variable whose name another source has, too.
#include <cuda_runtime.h>

__constant__ float factor;

template <typename T, int N>
__global__ void scale(T* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= N * factor;
}

template <typename T>
void* scale_kernel(bool twice) {
  const float one = 1;
  cudaMemcpyToSymbol(factor, &one, sizeof(one));
  if (twice) return (void*)scale<T, (1 < 2 ? 2 : 1)>;
  return reinterpret_cast<void*>(&scale<T, 1>);
}
template void* scale_kernel<float>(bool);
