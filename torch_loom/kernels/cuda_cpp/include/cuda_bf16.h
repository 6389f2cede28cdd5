#pragma once
#include "loom_cuda/device.h"
#include "loom_cuda/bfloat16.h"
