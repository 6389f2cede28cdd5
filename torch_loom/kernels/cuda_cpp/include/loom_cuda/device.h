// All that kernels may use without including a header of their own.
#pragma once

#define LOOM_CUDA_DEVICE_CODE
#include "loom_cuda/qualifiers.h"
// Before <assert.h>: what it calls fails the kernel.
#define __assert_fail loom_cuda_assert_fail
#include <assert.h>
#include <stdio.h>

#include "loom_cuda/atomics.h"
#include "loom_cuda/checks.h"
#include "loom_cuda/integers.h"
#include "loom_cuda/launch.h"
#include "loom_cuda/math.h"
#include "loom_cuda/matrices.h"
#include "loom_cuda/memory.h"
#include "loom_cuda/surfaces.h"
#include "loom_cuda/textures.h"
#include "loom_cuda/threads.h"
#include "loom_cuda/types.h"
#include "loom_cuda/warp.h"

// What the instructions of inline PTX are made of.
#include "../../../emission/cpp/assembly.h"
