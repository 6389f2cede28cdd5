// cuBLAS's products, as torch computes them.
#pragma once
#define CUBLAS_V2_H_
#define CUBLAS_API_H_
#ifdef __CUDACC__
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#endif
#include "loom_cuda/blas.h"
