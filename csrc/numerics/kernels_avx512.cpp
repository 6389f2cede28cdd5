// The inner loops for processors with AVX-512 (F, BW, VL, DQ).
#include "numerics/instruction_sets.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#pragma GCC optimize("O3")
// GCC's own header starts some results with a value that is not set, and warns of it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define LOOM_ISA "avx512"
#define LOOM_VECTOR_BYTES 64

namespace loom::numerics::avx512 {

namespace {

using Streamed = __m512;
inline void stream(float* to, Streamed value) { _mm512_stream_ps(to, value); }
inline void end_streaming() { _mm_sfence(); }

#include "numerics/kernels.inc"

}  // namespace

const Kernels& table() { return kKernels; }

}  // namespace loom::numerics::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
