// The loops for any processor.
#include "random/instruction_sets.h"

#if !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#define LOOM_ISA "baseline"
// Processors without the instruction take long for it.
#define LOOM_FMA(a, b, c) ((a) * (b) + (c))
#if defined(__FP_FAST_FMAF)
#define LOOM_FMA_FLOAT(a, b, c) __builtin_fmaf(a, b, c)
#else
#define LOOM_FMA_FLOAT(a, b, c) \
  static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c))
#endif

namespace loom::random::baseline {

namespace {

void words(uint64_t seed, uint64_t counter, uint64_t first, size_t count, bool, uint32_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const auto four = philox(seed, counter, first + i);
    for (size_t word = 0; word < 4; ++word) out[word * kThreads + i] = four[word];
  }
}

void take_square_roots(const float* values, size_t count, float* roots) {
  for (size_t i = 0; i < count; ++i) roots[i] = std::sqrt(values[i]);
}

#include "random/kernels.inc"

}  // namespace

const Kernels& table() { return kKernels; }

}  // namespace loom::random::baseline
