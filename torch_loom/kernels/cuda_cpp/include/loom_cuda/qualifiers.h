// CUDA's words for where code and data live. Kernels are functions of the host here; memory that the threads
// of a block share belongs to the thread of the host that runs the block.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#ifdef LOOM_CUDA_DEVICE_CODE
// The rewriter makes of it what it is, and of __noinline__, which the C++ library uses as a word of its own.
#define __shared__ __loom_shared__
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#endif

#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDART_CB
