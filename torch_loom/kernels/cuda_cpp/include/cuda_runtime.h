#pragma once
#ifdef __CUDACC__
#include "loom_cuda/device.h"
#endif
#include "cuda_runtime_api.h"
