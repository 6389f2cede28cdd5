// What kernels.inc needs around it: its headers, included before the compiler is told of an instruction set,
// and the pragmas that tell it.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
