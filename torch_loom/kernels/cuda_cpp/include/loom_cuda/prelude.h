// Stands in front of each source of CUDA C++, as nvcc puts its own headers there.
#pragma once

#define __NVCC__ 1
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDACC_RELAXED_CONSTEXPR__ 1

// Before its declaration: one name for the clocks of host and device (memory.h).
#pragma redefine_extname clock loom_cuda_clock_of_caller

// C++20's lerp(), which <math.h> puts into the global namespace: many programs have their own of this name.
#define lerp loom_cuda_std_lerp
#include <math.h>

#include <cmath>
#undef lerp
namespace std {
template <typename A, typename B, typename T>
constexpr auto lerp(A a, B b, T t) {
  return loom_cuda_std_lerp(a, b, t);
}
}  // namespace std

// Code is compiled once, for host and device: what a source keeps for the device is what runs.
#define __CUDA_ARCH__ 800
#include "cuda_runtime.h"
#include "loom_cuda/device.h"
#include "loom_cuda/markers.h"
