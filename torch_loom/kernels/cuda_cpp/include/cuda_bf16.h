#pragma once
#include "loom_cuda/bfloat16.h"
#include "loom_cuda/device.h"
