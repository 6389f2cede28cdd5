#pragma once
#include "cublas_v2.h"
#include "loom_cuda/blas_lt.h"
