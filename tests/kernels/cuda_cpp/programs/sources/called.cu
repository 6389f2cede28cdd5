#include <cuda_runtime.h>

// Of another source, with the indices of the thread that calls it.
extern __device__ int index_of_caller();
__global__ void called(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = index_of_caller(); }

extern "C" int called_from_another(int* x) {
  called<<<4, 32>>>(x);
  return cudaDeviceSynchronize();
}
