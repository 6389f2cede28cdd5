// Loops of products that are fused into sums: the processor's own instructions where it has them, elsewhere
// the library's, with the same bits.
#pragma once

#include <cstdint>

// Of a function with loops of fused().
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOOM_FUSES [[gnu::target_clones("arch=x86-64-v3", "default"), gnu::optimize("O3", "no-math-errno")]]
#else
#define LOOM_FUSES
#endif

namespace loom::glue {

// a * b + c, rounded once. std::fma is not inlined into a function of other options.
[[gnu::always_inline]] inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
[[gnu::always_inline]] inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// sums[i] += values[i] * values[i], rounded once.
void add_squares(float* sums, const float* values, int64_t count);
void add_squares(double* sums, const double* values, int64_t count);

}  // namespace loom::glue
