#include "shared.h"

__global__ void second(int* x) {
  const int i = Place().index();
  x[i] = -lanes_sum<32>(i);
}

// Launches of both sources, into an array of 512.
extern "C" int both(int* x) {
  const int before = made_once(x);
  second<<<2, 64>>>(x + 256);
  const int after = launches(x + 384, 5);
  return cudaDeviceSynchronize() == cudaSuccess && before == 1 && after == 2 ? 0 : 1;
}
