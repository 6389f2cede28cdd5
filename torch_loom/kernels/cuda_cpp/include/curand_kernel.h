// cuRAND's functions for kernels, with its default generator and Philox.
#pragma once
#include "curand.h"
#include "loom_cuda/random/distributions.h"
