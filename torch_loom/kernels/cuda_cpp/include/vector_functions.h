#pragma once
#include "loom_cuda/qualifiers.h"
#include "loom_cuda/types.h"
