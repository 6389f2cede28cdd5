// cuRAND's generator Philox4x32-10: a counter of 128 bits, encrypted by a key. The numbers are cuRAND's.
#pragma once

#include "loom_cuda/types.h"

struct curandStatePhilox4_32_10 {
  uint4 ctr;
  uint4 output;  // of `ctr`
  uint2 key;
  unsigned int STATE;  // numbers of `output` that are used
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace loom_cuda::random {

static inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const unsigned long long first = 0xD2511F53ULL * counter.x, second = 0xCD9E8D57ULL * counter.z;
    counter = {static_cast<unsigned>(second >> 32) ^ counter.y ^ key.x, static_cast<unsigned>(second),
               static_cast<unsigned>(first >> 32) ^ counter.w ^ key.y, static_cast<unsigned>(first)};
    key.x += 0x9E3779B9U;
    key.y += 0xBB67AE85U;
  }
  return counter;
}

// Adds to the low and to the high half of the counter; the low one's overflow goes to the high one.
static inline void advance(uint4& counter, unsigned long long low, unsigned long long high) {
  const unsigned long long old = counter.y * 0x100000000ULL + counter.x, sum = old + low;
  counter.x = static_cast<unsigned>(sum);
  counter.y = static_cast<unsigned>(sum >> 32);
  const unsigned long long above = counter.w * 0x100000000ULL + counter.z + high + (sum < old ? 1 : 0);
  counter.z = static_cast<unsigned>(above);
  counter.w = static_cast<unsigned>(above >> 32);
}

static inline unsigned component(const uint4& values, unsigned i) {
  return i == 0 ? values.x : i == 1 ? values.y : i == 2 ? values.z : values.w;
}

}  // namespace loom_cuda::random

static inline uint4 curand_Philox4x32_10(uint4 counter, uint2 key) {
  return loom_cuda::random::philox(counter, key);
}

static inline void skipahead(unsigned long long numbers, curandStatePhilox4_32_10_t* state) {
  state->STATE += static_cast<unsigned>(numbers & 3);
  loom_cuda::random::advance(state->ctr, numbers / 4 + state->STATE / 4, 0);
  state->STATE %= 4;
  state->output = loom_cuda::random::philox(state->ctr, state->key);
}
static inline void skipahead_sequence(unsigned long long sequences, curandStatePhilox4_32_10_t* state) {
  loom_cuda::random::advance(state->ctr, 0, sequences);
  state->output = loom_cuda::random::philox(state->ctr, state->key);
}
static inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                               unsigned long long offset, curandStatePhilox4_32_10_t* state) {
  *state = {};
  state->key = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}

static inline unsigned int curand(curandStatePhilox4_32_10_t* state) {
  const unsigned number = loom_cuda::random::component(state->output, state->STATE);
  if (++state->STATE == 4) skipahead(0, state);
  return number;
}
// The next four numbers.
static inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
  const uint4 before = state->output;
  loom_cuda::random::advance(state->ctr, 1, 0);
  const uint4 after = state->output = loom_cuda::random::philox(state->ctr, state->key);
  switch (state->STATE) {
    case 0:
      return before;
    case 1:
      return {before.y, before.z, before.w, after.x};
    case 2:
      return {before.z, before.w, after.x, after.y};
    default:
      return {before.w, after.x, after.y, after.z};
  }
}
