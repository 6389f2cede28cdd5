#pragma once
#include "loom_cuda/device.h"
