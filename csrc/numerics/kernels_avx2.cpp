// The inner loops for processors with AVX2 and FMA.
#include "numerics/instruction_sets.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize("O3")
#endif

#define LOOM_ISA "avx2"
#define LOOM_VECTOR_BYTES 32

namespace loom::numerics::avx2 {

namespace {

using Streamed = __m256;
inline void stream(float* to, Streamed value) { _mm256_stream_ps(to, value); }
inline void end_streaming() { _mm_sfence(); }

#include "numerics/kernels.inc"

}  // namespace

const Kernels& table() { return kKernels; }

}  // namespace loom::numerics::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
