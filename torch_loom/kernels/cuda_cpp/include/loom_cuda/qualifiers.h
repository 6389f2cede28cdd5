// CUDA's words for where code and data live. Kernels are functions of the host here; memory that the threads
// of a block share belongs to the thread of the host that runs the block.
#pragma once

#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __global__
#define __device__
#define __constant__
#define __managed__

#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
// What nvcc knows of a lambda's type; here each runs on both sides.
#define __nv_is_extended_device_lambda_closure_type(...) true
#define __nv_is_extended_host_device_lambda_closure_type(...) true
#define CUDARTAPI
#define CUDART_CB
