#include "shared.h"

__device__ int add(int x) { return x + 1; }
__global__ void first(int* x) {
  const int i = Place().index();
  x[i] = add(lanes_sum<32>(i));
}

template <typename T>
int made_once(T* x) {
  first<<<2, 64>>>(x);
  return launches<T>(x + 128, 3);
}
template int made_once<int>(int* x);
