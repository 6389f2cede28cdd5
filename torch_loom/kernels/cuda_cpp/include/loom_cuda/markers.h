// The same words in a program's code: the rewriter makes of them what they are, and of __noinline__, which
// the C++ library uses as a word of its own.
#pragma once

#undef __global__
#undef __device__
#undef __constant__
#undef __managed__
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
