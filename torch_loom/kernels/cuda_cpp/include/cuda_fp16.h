#pragma once
#include "loom_cuda/device.h"
#include "loom_cuda/half.h"
