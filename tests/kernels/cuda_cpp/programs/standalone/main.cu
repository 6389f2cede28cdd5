// A program of its own: sums its arguments on the device, by tiles of a block whose size only the run knows.
#include <cooperative_groups.h>
#include <stdio.h>
#include <stdlib.h>

#include "sum.h"
// As NVIDIA's samples ask whether CUDA's headers are there.
#if !defined(__DRIVER_TYPES_H__) || !defined(__CUDA_RUNTIME_H__)
#error "CUDA's headers are missing"
#endif

namespace cg = cooperative_groups;

__device__ int sum(const cg::thread_group& group, int* shared, int value) {
  const int rank = group.thread_rank();
  for (int i = group.size() / 2; i > 0; i /= 2) {
    shared[rank] = value;
    group.sync();
    if (rank < i) value += shared[rank + i];
    group.sync();
  }
  return value;
}

__global__ void sums(const int* numbers, int* results, int tile) {
  __shared__ int shared[64];
  const cg::thread_block block = cg::this_thread_block();
  const int all = sum(block, shared, numbers[threadIdx.x]);
  const cg::thread_group part = cg::tiled_partition(block, tile);
  const int first = block.thread_rank() - part.thread_rank();
  const int some = sum(part, shared + first, numbers[threadIdx.x]);
  if (threadIdx.x == 0) results[0] = all;
  if (part.thread_rank() == 0) results[1 + first / tile] = some;
}

__global__ void write(int* where) { *where = 1; }

// A device that has failed stays so: launches say nothing, and who asks is told.
int fail(int* null) {
  write<<<1, 1>>>(null);
  const cudaError_t first = cudaDeviceSynchronize();
  write<<<1, 1>>>(null);
  printf("%s; %s\n", cudaGetErrorName(first), cudaGetErrorName(cudaGetLastError()));
  return 8;
}

int main(int count, char** words) {
  if (count == 1) return fail(reinterpret_cast<int*>(words[1]));
  int *numbers, *results, mode = -1;
  char bus[20];
  cudaSetDeviceFlags(cudaDeviceScheduleSpin);
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, 0) != cudaSuccess || mode != 0) return 2;
  if (cudaDeviceGetPCIBusId(bus, sizeof(bus), 0) != cudaSuccess) return 3;
  if (cudaMallocManaged(&numbers, 64 * sizeof(int)) != cudaSuccess) return 4;
  if (cudaMallocManaged(&results, 8 * sizeof(int)) != cudaSuccess) return 5;
  for (int i = 0; i < 64; ++i) numbers[i] = i + 1 < count ? doubled(atoi(words[i + 1])) : i;
  sums<<<1, 64>>>(numbers, results, 16);
  if (cudaDeviceSynchronize() != cudaSuccess) return 6;
  printf("%s: %d = %d + %d + %d + %d\n", bus, results[0], results[1], results[2], results[3], results[4]);
  return 7;
}
