// The loops for processors with AVX2 and FMA.
#include "random/instruction_sets.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#define LOOM_ISA "avx2"
#define LOOM_FMA(a, b, c) __builtin_fma(a, b, c)
#define LOOM_FMA_FLOAT(a, b, c) __builtin_fmaf(a, b, c)

namespace loom::random::avx2 {

namespace {

// Four threads: a word of each in the lower half of a 64-bit lane. The upper halves are left as they come,
// since a multiplication reads the lower ones alone.
struct Four {
  __m256i c0, c1, c2, c3;
};

inline void round(Four& four, __m256i key0, __m256i key1) {
  const __m256i product0 = _mm256_mul_epu32(four.c0, _mm256_set1_epi64x(kMultiplier0));
  const __m256i product1 = _mm256_mul_epu32(four.c2, _mm256_set1_epi64x(kMultiplier1));
  four.c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), four.c1), key0);
  four.c1 = product1;
  four.c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), four.c3), key1);
  four.c3 = product0;
}

// What the first two words need of the last round.
inline void half_round(Four& four, __m256i key0) {
  const __m256i product1 = _mm256_mul_epu32(four.c2, _mm256_set1_epi64x(kMultiplier1));
  four.c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), four.c1), key0);
  four.c1 = product1;
}

// The lower halves of eight lanes.
inline void store(uint32_t* out, __m256i low, __m256i high) {
  const __m256 mixed =
      _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _MM_SHUFFLE(2, 0, 2, 0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), _MM_SHUFFLE(3, 1, 2, 0)));
}

// Four groups of threads at a time, so that none waits for the products of another.
template <bool kIsTwo>
void words_of(uint64_t seed, uint64_t counter, uint64_t first, size_t count, uint32_t* out) {
  __m256i keys0[kRounds], keys1[kRounds];
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int i = 0; i < kRounds; ++i) {
    keys0[i] = _mm256_set1_epi64x(key0);
    keys1[i] = _mm256_set1_epi64x(key1);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const __m256i counter_low = _mm256_set1_epi64x(static_cast<int64_t>(counter & 0xFFFFFFFF));
  const __m256i counter_high = _mm256_set1_epi64x(static_cast<int64_t>(counter >> 32));
  const __m256i lanes = _mm256_set_epi64x(3, 2, 1, 0);
  constexpr size_t kGroups = 4;
  // In sixteens; callers' buffers have room for the last.
  for (size_t i = 0; i < count; i += 4 * kGroups) {
    Four fours[kGroups];
    for (size_t group = 0; group < kGroups; ++group) {
      const auto start = static_cast<int64_t>(first + i + 4 * group);
      const __m256i threads = _mm256_add_epi64(_mm256_set1_epi64x(start), lanes);
      fours[group] = {counter_low, counter_high, threads, _mm256_srli_epi64(threads, 32)};
    }
    for (int turn = 0; turn < kRounds - 1; ++turn) {
      for (Four& four : fours) round(four, keys0[turn], keys1[turn]);
    }
    for (Four& four : fours) {
      if constexpr (kIsTwo) {
        half_round(four, keys0[kRounds - 1]);
      } else {
        round(four, keys0[kRounds - 1], keys1[kRounds - 1]);
      }
    }
    for (size_t group = 0; group < kGroups; group += 2) {
      const Four &a = fours[group], &b = fours[group + 1];
      uint32_t* const to = out + i + 4 * group;
      store(to, a.c0, b.c0);
      store(to + kThreads, a.c1, b.c1);
      if constexpr (!kIsTwo) {
        store(to + 2 * kThreads, a.c2, b.c2);
        store(to + 3 * kThreads, a.c3, b.c3);
      }
    }
  }
}

void words(uint64_t seed, uint64_t counter, uint64_t first, size_t count, bool is_two, uint32_t* out) {
  is_two ? words_of<true>(seed, counter, first, count, out)
         : words_of<false>(seed, counter, first, count, out);
}

void take_square_roots(const float* values, size_t count, float* roots) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(roots + i, _mm256_sqrt_ps(_mm256_loadu_ps(values + i)));
  for (; i < count; ++i) roots[i] = std::sqrt(values[i]);
}

#include "random/kernels.inc"

}  // namespace

const Kernels& table() { return kKernels; }

}  // namespace loom::random::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
