#pragma once
#include "loom_cuda/runtime_api.h"
