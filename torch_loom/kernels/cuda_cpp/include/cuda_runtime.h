#pragma once
#define __CUDA_RUNTIME_H__
#ifdef __CUDACC__
#include "loom_cuda/device.h"
#endif
#include "cuda_runtime_api.h"
