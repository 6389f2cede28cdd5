// Of CUDA's driver library: see the file that is included.
#pragma once
#include "loom_cuda/driver_api.h"

// Programs ask by this name whether it is there.
#define __cuda_cuda_h__
