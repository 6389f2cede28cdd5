#pragma once
#include "cuda_fp8.h"
#include "loom_cuda/float4.h"
