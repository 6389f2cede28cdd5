#pragma once
#include "loom_cuda/device.h"
#include "loom_cuda/float8.h"
