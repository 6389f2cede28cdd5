// cuRAND's default generator: Marsaglia's xorwow, whose sequences are 2^67 numbers apart. The numbers are
// cuRAND's.
#pragma once

#include <string.h>

#include "loom_cuda/checks.h"

struct curandStateXORWOW {
  unsigned int d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW_t curandState_t;
typedef curandStateXORWOW_t curandState;

namespace loom_cuda::random {

static inline void step(unsigned* v) {
  const unsigned first = v[0] ^ (v[0] >> 2), last = v[4];
  memmove(v, v + 1, 4 * sizeof(*v));
  v[4] = (last ^ (last << 4)) ^ (first ^ (first << 1));
}

// A linear function of the 160 bits: what it makes of each.
struct Jump {
  unsigned of_bit[160][5];

  void apply(unsigned* v) const {
    unsigned sum[5] = {};
    for (int bit = 0; bit < 160; ++bit) {
      const unsigned all = 0U - (v[bit / 32] >> bit % 32 & 1);
      for (int i = 0; i < 5; ++i) sum[i] ^= of_bit[bit][i] & all;
    }
    memcpy(v, sum, sizeof(sum));
  }
};

// jump(k) moves 2^k numbers ahead, for each k below 2^67 numbers and 64 bits of sequences.
class Jumps {
 public:
  Jumps() {
    for (int bit = 0; bit < 160; ++bit) {
      unsigned* const v = jumps_[0].of_bit[bit];
      memset(v, 0, sizeof(jumps_[0].of_bit[bit]));
      v[bit / 32] = 1U << bit % 32;
      step(v);
    }
    for (int k = 1; k < kJumps; ++k) {
      jumps_[k] = jumps_[k - 1];
      for (auto& image : jumps_[k].of_bit) jumps_[k - 1].apply(image);
    }
  }
  void ahead(unsigned* v, unsigned long long count, int first) const {
    for (int bit = 0; count >> bit != 0; ++bit) {
      if (count >> bit & 1) jumps_[first + bit].apply(v);
      if (bit == 63) break;
    }
  }

 private:
  static constexpr int kJumps = 67 + 64;
  Jump jumps_[kJumps];
};
static inline const Jumps& jumps() {
  static const Jumps all;
  return all;
}

}  // namespace loom_cuda::random

static inline void skipahead(unsigned long long numbers, curandStateXORWOW_t* state) {
  if (numbers == 0) return;
  const loom_cuda::Unchecked own_memory;
  loom_cuda::random::jumps().ahead(state->v, numbers, 0);
  state->d += 362437U * static_cast<unsigned>(numbers);
}
static inline void skipahead_sequence(unsigned long long sequences, curandStateXORWOW_t* state) {
  if (sequences == 0) return;
  const loom_cuda::Unchecked own_memory;
  loom_cuda::random::jumps().ahead(state->v, sequences, 67);
}
static inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                               unsigned long long offset, curandStateXORWOW_t* state) {
  const unsigned low = 1099087573U * (static_cast<unsigned>(seed) ^ 0xAAD26B49U);
  const unsigned high = 2591861531U * (static_cast<unsigned>(seed >> 32) ^ 0xF7DCEFDDU);
  *state = {6615241U + low + high,
            {123456789U + low, 362436069U ^ low, 521288629U + high, 88675123U ^ high, 5783321U + low},
            0,
            0,
            0,
            0};
  skipahead(offset, state);
  skipahead_sequence(subsequence, state);
}
static inline unsigned int curand(curandStateXORWOW_t* state) {
  loom_cuda::random::step(state->v);
  state->d += 362437U;
  return state->v[4] + state->d;
}
