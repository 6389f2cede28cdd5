// One thread's generator, for kernels whose threads draw as many numbers as they happen to need: cuRAND's
// curandStatePhilox4_32_10_t.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "random/kernels.h"
#include "random/philox.h"
#include "torch/random/nullary.h"

namespace loom::glue::cuda_random {

class ThreadState {
 public:
  // `offset`: a multiple of 4.
  ThreadState(uint64_t seed, uint64_t thread, uint64_t offset)
      : seed_(seed), thread_(thread), counter_(offset / kNumbersPerCall), words_(next_words()) {}

  // curand()
  uint32_t word() {
    const uint32_t word = words_[used_++];
    if (used_ == words_.size()) {
      ++counter_;
      words_ = next_words();
      used_ = 0;
    }
    return word;
  }

  // curand_uniform()
  float uniform() {
    const uint32_t bits = word();
    float number = 0;
    random::kernels().uniform(&bits, 1, &number);
    return number;
  }

  // curand_normal(): two at a time, of which the second waits for the next call.
  float normal() {
    if (waiting_.has_value()) return *std::exchange(waiting_, std::nullopt);
    const uint32_t x = word(), y = word();
    float sine = 0, cosine = 0;
    random::kernels().normal(&x, &y, 1, &sine, &cosine);
    waiting_ = cosine;
    return sine;
  }

  // The first that curand_normal_double() gives.
  double normal_double() {
    const uint32_t x0 = word(), x1 = word(), y0 = word(), y1 = word();
    double sine = 0, cosine = 0;
    normal_of(x0, x1, y0, y1, sine, cosine);
    return sine;
  }

 private:
  std::array<uint32_t, 4> next_words() const { return random::philox(seed_, counter_, thread_); }

  const uint64_t seed_, thread_;
  uint64_t counter_;
  std::array<uint32_t, 4> words_;
  size_t used_ = 0;
  std::optional<float> waiting_;
};

}  // namespace loom::glue::cuda_random
