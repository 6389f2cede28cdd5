// CUDA's words for where code and data live. Kernels are functions of the host here; memory that the threads
// of a block share belongs to the thread of the host that runs the block.
#pragma once

#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#ifdef LOOM_CUDA_DEVICE_CODE
// The rewriter makes of them what they are, and of __noinline__, which the C++ library uses as a word of its
// own.
#define __shared__ __loom_shared__
#define __global__ __loom_global__
#define __device__ __loom_device__
#define __constant__ __loom_device__
#define __managed__ __loom_device__
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __block_size__(...)
// What the compiler may take for granted: nvcc's word, which g++ does not have.
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#else
#define __global__
#define __device__
#define __constant__
#define __managed__
#endif

#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDART_CB
