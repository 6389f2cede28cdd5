// The inner loops for any processor.
#include "numerics/instruction_sets.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define LOOM_ISA "baseline"
#define LOOM_VECTOR_BYTES 16

namespace loom::numerics::baseline {

namespace {

#if defined(__x86_64__)
using Streamed = __m128;
inline void stream(float* to, Streamed value) { _mm_stream_ps(to, value); }
inline void end_streaming() { _mm_sfence(); }
#else
struct Streamed {
  float values[4];
};
inline void stream(float* to, Streamed value) { std::memcpy(to, value.values, sizeof value); }
inline void end_streaming() {}
#endif

#include "numerics/kernels.inc"

}  // namespace

const Kernels& table() { return kKernels; }

}  // namespace loom::numerics::baseline
