// What kernels.inc needs around it: its headers, included before an instruction set is selected, and the
// pragmas that select it.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "numerics/formats.h"
#include "numerics/kernels.h"
#include "numerics/scalar.h"

// Vectors are passed between functions that are inlined, so no ABI is at stake.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define LOOM_INLINE_LAMBDA __attribute__((always_inline))
