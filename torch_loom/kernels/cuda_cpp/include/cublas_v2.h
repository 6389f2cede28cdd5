// cuBLAS's products, as torch computes them.
#pragma once
#ifdef __CUDACC__
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#endif
#include "loom_cuda/blas.h"
