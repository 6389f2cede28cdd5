// What the build of a CUDA library would have written.
#pragma once
#define AT_CUDNN_ENABLED() 0
#define AT_CUSPARSELT_ENABLED() 0
#define AT_HIPSPARSELT_ENABLED() 0
#define AT_ROCM_ENABLED() 0
#define AT_MAGMA_ENABLED() 0
#define AT_USE_CUB() 1
#define NVCC_FLAGS_EXTRA ""
