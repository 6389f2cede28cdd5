// Numbers of cuRAND's generators as distributions: uniform in (0, 1], normal by Box and Muller, log-normal,
// Poisson. The uniform ones have cuRAND's bits; the normal ones are the exact values of those, rounded once,
// which a GPU's approximate functions are within a few last bits of. Poisson's counts have its distribution; no
// published ones of cuRAND's were compared.
#pragma once

#include "loom_cuda/math.h"
#include "loom_cuda/random/philox.h"
#include "loom_cuda/random/xorwow.h"

namespace loom_cuda::random {

constexpr float kPerNumber = 2.3283064e-10F;         // 2^-32
constexpr float kPerTurn = 0x1.921FB4p-30F;          // of 2 pi, as torch's kernels have it
constexpr double kPerPair = 1.1102230246251565e-16;  // 2^-53

static inline float uniform(unsigned x) { return x * kPerNumber + kPerNumber / 2; }
static inline unsigned long long pair(unsigned x, unsigned y) {
  return x ^ static_cast<unsigned long long>(y) << (53 - 32);
}
static inline double uniform(unsigned x, unsigned y) { return pair(x, y) * kPerPair + kPerPair / 2; }

static inline float2 normal(unsigned x, unsigned y) {
  const double angle = y * kPerTurn + kPerTurn / 2, length = sqrt(-2 * log(static_cast<double>(uniform(x))));
  return {static_cast<float>(sin(angle) * length), static_cast<float>(cos(angle) * length)};
}
static inline double2 normal(const uint4& x) {
  const double turns = pair(x.z, x.w) * (kPerPair * 2) + kPerPair;
  const double length = sqrt(-2 * log(uniform(x.x, x.y)));
  return {sinpi(turns) * length, cospi(turns) * length};
}

// Four numbers in order.
template <typename State>
static inline uint4 four(State* state) {
  uint4 x;
  x.x = curand(state);
  x.y = curand(state);
  x.z = curand(state);
  x.w = curand(state);
  return x;
}
static inline uint4 four(curandStatePhilox4_32_10_t* state) { return curand4(state); }

constexpr int kHasExtra = 1;

// The products of uniform numbers, up to the last one that stays above exp(-mean).
template <typename State>
static inline unsigned poisson(State* state, double mean) {
  if (mean >= 4000) {
    const uint4 x = four(state);
    return static_cast<unsigned>(normal(x).x * sqrt(mean) + mean + 0.5);
  }
  unsigned sum = 0;
  while (mean > 0) {
    const double part = mean > 64 ? 64 : mean;  // exp of more would be too small a number
    float product = expf(static_cast<float>(part));
    unsigned count = 0;
    do {
      ++count;
      product *= uniform(curand(state));
    } while (product > 1);
    sum += count - 1;
    mean -= part;
  }
  return sum;
}

}  // namespace loom_cuda::random

#define LOOM_CUDA_DISTRIBUTIONS(State)                                                                   \
  static inline float curand_uniform(State* state) { return loom_cuda::random::uniform(curand(state)); } \
  static inline double curand_uniform_double(State* state) {                                             \
    const unsigned x = curand(state), y = curand(state);                                                 \
    return loom_cuda::random::uniform(x, y);                                                             \
  }                                                                                                      \
  static inline float2 curand_normal2(State* state) {                                                    \
    const unsigned x = curand(state), y = curand(state);                                                 \
    return loom_cuda::random::normal(x, y);                                                              \
  }                                                                                                      \
  static inline double2 curand_normal2_double(State* state) {                                            \
    return loom_cuda::random::normal(loom_cuda::random::four(state));                                    \
  }                                                                                                      \
  static inline float curand_normal(State* state) {                                                      \
    if (state->boxmuller_flag != 0) {                                                                    \
      state->boxmuller_flag = 0;                                                                         \
      return state->boxmuller_extra;                                                                     \
    }                                                                                                    \
    const float2 both = curand_normal2(state);                                                           \
    state->boxmuller_flag = loom_cuda::random::kHasExtra;                                                \
    state->boxmuller_extra = both.y;                                                                     \
    return both.x;                                                                                       \
  }                                                                                                      \
  static inline double curand_normal_double(State* state) {                                              \
    if (state->boxmuller_flag_double != 0) {                                                             \
      state->boxmuller_flag_double = 0;                                                                  \
      return state->boxmuller_extra_double;                                                              \
    }                                                                                                    \
    const double2 both = curand_normal2_double(state);                                                   \
    state->boxmuller_flag_double = loom_cuda::random::kHasExtra;                                         \
    state->boxmuller_extra_double = both.y;                                                              \
    return both.x;                                                                                       \
  }                                                                                                      \
  static inline float curand_log_normal(State* state, float mean, float deviation) {                     \
    return expf(mean + deviation * curand_normal(state));                                                \
  }                                                                                                      \
  static inline double curand_log_normal_double(State* state, double mean, double deviation) {           \
    return exp(mean + deviation * curand_normal_double(state));                                          \
  }                                                                                                      \
  static inline float2 curand_log_normal2(State* state, float mean, float deviation) {                   \
    const float2 both = curand_normal2(state);                                                           \
    return {expf(mean + deviation * both.x), expf(mean + deviation * both.y)};                           \
  }                                                                                                      \
  static inline unsigned curand_poisson(State* state, double mean) {                                     \
    return loom_cuda::random::poisson(state, mean);                                                      \
  }

LOOM_CUDA_DISTRIBUTIONS(curandStateXORWOW_t)
LOOM_CUDA_DISTRIBUTIONS(curandStatePhilox4_32_10_t)
#undef LOOM_CUDA_DISTRIBUTIONS

static inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  using loom_cuda::random::uniform;
  return {uniform(x.x), uniform(x.y), uniform(x.z), uniform(x.w)};
}
static inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  return {loom_cuda::random::uniform(x.x, x.y), loom_cuda::random::uniform(x.z, x.w)};
}
static inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  const float2 first = loom_cuda::random::normal(x.x, x.y), second = loom_cuda::random::normal(x.z, x.w);
  return {first.x, first.y, second.x, second.y};
}
static inline float4 curand_log_normal4(curandStatePhilox4_32_10_t* state, float mean, float deviation) {
  const float4 x = curand_normal4(state);
  return {expf(mean + deviation * x.x), expf(mean + deviation * x.y), expf(mean + deviation * x.z),
          expf(mean + deviation * x.w)};
}
static inline uint4 curand_poisson4(curandStatePhilox4_32_10_t* state, double mean) {
  uint4 counts;
  counts.x = curand_poisson(state, mean);
  counts.y = curand_poisson(state, mean);
  counts.z = curand_poisson(state, mean);
  counts.w = curand_poisson(state, mean);
  return counts;
}
