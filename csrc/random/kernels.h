// CUDA's random numbers: what cuRAND's Philox generator gives each thread of a kernel, for many threads at a
// time. The loops are compiled for several instruction sets; the best that the processor has is taken at run
// time. All of them give the same words, uniform and normal numbers; logarithms may differ in their last bit,
// in one of some 10^7. They know nothing of PyTorch and start no threads.
//
// Source: cuRAND's documentation of curand_init() (key: seed; counter: offset / 4 in its lower half, the
// number of the thread in its upper half), curand_uniform4(), curand_normal4() and their double forms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loom::random {

// Threads that are computed at a time: what callers' buffers hold of each of the four words.
inline constexpr size_t kThreads = 512;

struct Kernels {
  const char* name;
  // The four words of `count` threads from `first`, at most kThreads: word w of thread i at
  // out[w * kThreads + i]. Of two words, the others need not be written.
  void (*words)(uint64_t seed, uint64_t counter, uint64_t first, size_t count, bool is_two, uint32_t* out);
  // Above 0 and up to 1, as curand_uniform(). May be done in place.
  void (*uniform)(const uint32_t* words, size_t count, float* out);
  // Normal numbers, two from two words each: Box and Muller's, sine first; within 1.5 units in the last place
  // of the exact value for the float32 radius and angle.
  void (*normal)(const uint32_t* x, const uint32_t* y, size_t count, float* sine, float* cosine);
  // Natural logarithms of normal positive numbers, in place: the nearest float32, but for 1 in some 10^7.
  void (*log)(float* values, size_t count);
  // values * scale + shift, rounded once, in place.
  void (*affine)(float* values, size_t count, float scale, float shift);
  // `from` where a value is `to`, in place.
  void (*replace)(float* values, size_t count, float to, float from);
};

// What this processor runs best.
const Kernels& kernels();
// By name ("avx2", "baseline"), for tests; null: the processor or the build lacks it.
const Kernels* kernels_named(const char* name);

}  // namespace loom::random
