// What kernels.inc needs around it: headers, included before an instruction set is selected.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "random/kernels.h"
#include "random/philox.h"

// Each operation rounds by itself, on every processor.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
