// What the lanes of a warp do together.
#pragma once

#include <type_traits>

#include "loom_cuda/checks.h"
#include "loom_cuda/threads.h"

namespace loom_cuda {

static inline void no_combine(void* const*, unsigned) {}

template <typename T>
struct Shuffled {
  T value;
  unsigned source;  // a lane
};

template <typename T>
static void shuffle_lanes(void* const* given, unsigned lanes) {
  const Unchecked own_memory;
  T values[32];
  for (unsigned l = 0; l < 32; ++l) {
    if (lanes >> l & 1) values[l] = static_cast<Shuffled<T>*>(given[l])->value;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    auto& own = *static_cast<Shuffled<T>*>(given[l]);
    // What a lane holds that is not there is undefined: its own is as good as any.
    if (lanes >> own.source & 1) own.value = values[own.source];
  }
}

template <typename T>
static inline T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(std::is_trivially_copyable_v<T>, "a warp shuffles values that can be copied byte by byte");
  Shuffled<T> given{value, source};
  meet(mask, given, &shuffle_lanes<T>);
  return given.value;
}

struct Vote {
  unsigned value;
};
static inline void ballot_lanes(void* const* given, unsigned lanes) {
  const Unchecked own_memory;
  unsigned all = 0;
  for (unsigned l = 0; l < 32; ++l) {
    if ((lanes >> l & 1) && static_cast<Vote*>(given[l])->value != 0) all |= 1U << l;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if (lanes >> l & 1) static_cast<Vote*>(given[l])->value = all;
  }
}

template <typename T>
struct Matched {
  T value;
  unsigned lanes;
};
template <typename T>
static void match_lanes(void* const* given, unsigned lanes) {
  const Unchecked own_memory;
  for (unsigned l = 0; l < 32; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    auto& own = *static_cast<Matched<T>*>(given[l]);
    own.lanes = 0;
    for (unsigned k = 0; k < 32; ++k) {
      if ((lanes >> k & 1) && memcmp(&static_cast<Matched<T>*>(given[k])->value, &own.value, sizeof(T)) == 0)
        own.lanes |= 1U << k;
    }
  }
}

template <typename T, typename Op>
static void reduce_lanes(void* const* given, unsigned lanes) {
  const Unchecked own_memory;
  bool is_first = true;
  T all{};
  for (unsigned l = 0; l < 32; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    const T& own = *static_cast<T*>(given[l]);
    all = is_first ? own : Op()(all, own);
    is_first = false;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if (lanes >> l & 1) *static_cast<T*>(given[l]) = all;
  }
}
template <typename Op, typename T>
static inline T reduce(unsigned mask, T value) {
  meet(mask, value, &reduce_lanes<T, Op>);
  return value;
}

#define LOOM_CUDA_OPERATION(name, expression)    \
  struct name {                                  \
    template <typename T>                        \
    T operator()(const T& a, const T& b) const { \
      return expression;                         \
    }                                            \
  };
LOOM_CUDA_OPERATION(Add, a + b)
LOOM_CUDA_OPERATION(Least, b < a ? b : a)
LOOM_CUDA_OPERATION(Greatest, a < b ? b : a)
LOOM_CUDA_OPERATION(And, a& b)
LOOM_CUDA_OPERATION(Or, a | b)
LOOM_CUDA_OPERATION(Xor, a ^ b)
#undef LOOM_CUDA_OPERATION

}  // namespace loom_cuda

static inline void __syncwarp(unsigned mask = 0xffffffffU) {
  loom_cuda::Vote none{0};
  loom_cuda::meet(mask, none, &loom_cuda::no_combine);
}

// A lane takes its value from the lane of its segment of `width` lanes that the function's name says; where
// there is none, it keeps its own.
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned first = loom_cuda::lane() & ~(static_cast<unsigned>(width) - 1);
  return loom_cuda::shuffle(mask, value, first + (static_cast<unsigned>(source) & (width - 1)));
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = loom_cuda::lane(), first = lane & ~(static_cast<unsigned>(width) - 1);
  return loom_cuda::shuffle(mask, value, lane - first < delta ? lane : lane - delta);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = loom_cuda::lane(), end = (lane & ~(static_cast<unsigned>(width) - 1)) + width;
  return loom_cuda::shuffle(mask, value, lane + delta < end ? lane + delta : lane);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned lane = loom_cuda::lane(), source = lane ^ static_cast<unsigned>(lanes);
  const unsigned end = (lane & ~(static_cast<unsigned>(width) - 1)) + width;
  return loom_cuda::shuffle(mask, value, source < end ? source : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  loom_cuda::Vote vote{predicate != 0};
  loom_cuda::meet(mask, vote, &loom_cuda::ballot_lanes);
  return vote.value;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
static inline int __uni_sync(unsigned mask, int predicate) {
  return __all_sync(mask, predicate) || __all_sync(mask, !predicate);
}

template <typename T>
static inline unsigned __match_any_sync(unsigned mask, T value) {
  loom_cuda::Matched<T> given{value, 0};
  loom_cuda::meet(mask, given, &loom_cuda::match_lanes<T>);
  return given.lanes;
}
template <typename T>
static inline unsigned __match_all_sync(unsigned mask, T value, int* are_equal) {
  const unsigned lanes = __match_any_sync(mask, value);
  *are_equal = lanes == __ballot_sync(mask, 1);  // not the mask: a warp may have fewer lanes
  return *are_equal ? mask : 0;
}

#define LOOM_CUDA_REDUCE(name, Op, T) \
  static inline T name(unsigned mask, T value) { return loom_cuda::reduce<loom_cuda::Op>(mask, value); }
LOOM_CUDA_REDUCE(__reduce_add_sync, Add, unsigned)
LOOM_CUDA_REDUCE(__reduce_add_sync, Add, int)
LOOM_CUDA_REDUCE(__reduce_min_sync, Least, unsigned)
LOOM_CUDA_REDUCE(__reduce_min_sync, Least, int)
LOOM_CUDA_REDUCE(__reduce_max_sync, Greatest, unsigned)
LOOM_CUDA_REDUCE(__reduce_max_sync, Greatest, int)
LOOM_CUDA_REDUCE(__reduce_and_sync, And, unsigned)
LOOM_CUDA_REDUCE(__reduce_or_sync, Or, unsigned)
LOOM_CUDA_REDUCE(__reduce_xor_sync, Xor, unsigned)
#undef LOOM_CUDA_REDUCE

// shfl.sync of PTX, whose register `segments` says in its upper byte which bits of a lane's number are those
// of its segment, and in the lower one where the segment ends (mode u: begins).
namespace loom_cuda::ptx {

struct OtherLane {
  unsigned value;
  bool is_in_segment;
};
template <char mode>  // u: up, d: down, b: butterfly, i: index
static inline OtherLane other_lane(unsigned mask, unsigned value, unsigned by, unsigned segments) {
  const unsigned own = lane(), fixed = segments >> 8 & 31, first = own & fixed;
  const int end = static_cast<int>(first | (segments & 31 & ~fixed));
  by &= 31;
  const unsigned sources[] = {own - by, own + by, own ^ by, first | (by & ~fixed)};
  const int source = static_cast<int>(sources[mode == 'u' ? 0 : mode == 'd' ? 1 : mode == 'b' ? 2 : 3]);
  const bool is_in_segment = mode == 'u' ? source >= end : source <= end;
  return {shuffle(mask, value, is_in_segment ? static_cast<unsigned>(source) : own), is_in_segment};
}

}  // namespace loom_cuda::ptx
