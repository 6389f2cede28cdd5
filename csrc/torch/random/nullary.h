// Fills tensors as CUDA's kernels of distributions do: thread t of a grid of T threads draws the elements
// t, t + T, t + 2 T, ... in the order in which TensorIterator walks over the tensor, four (or two) at a time.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorIterator.h>

#include <cmath>
#include <cstring>

#include "random/kernels.h"
#include "torch/random/grid.h"

namespace loom::glue::cuda_random {

namespace templates = at::native::templates;
using random::kThreads;
using Words = uint32_t[4 * kThreads];

// What threads draw: `Number`s, kUnroll of them at a time. make() turns the words of `count` threads into the
// first `waves` numbers of each: number w of thread i at out[w * kThreads + i]. kNeedsAll: of all four words,
// also where half of the numbers are wanted.
struct Words32 {
  using Number = uint32_t;
  static constexpr int kUnroll = 4;
  static constexpr bool kNeedsAll = false;
  static void make(const Words& words, size_t count, int waves, Number* out) {
    for (int w = 0; w < waves; ++w) std::copy_n(words + w * kThreads, count, out + w * kThreads);
  }
};

struct Words64 {
  using Number = uint64_t;
  static constexpr int kUnroll = 2;
  static constexpr bool kNeedsAll = false;
  static void make(const Words& words, size_t count, int waves, Number* out) {
    for (int w = 0; w < waves; ++w) {
      const uint32_t *high = words + 2 * w * kThreads, *low = high + kThreads;
      for (size_t i = 0; i < count; ++i) out[w * kThreads + i] = uint64_t{high[i]} << 32 | low[i];
    }
  }
};

struct Uniform32 {
  using Number = float;
  static constexpr int kUnroll = 4;
  static constexpr bool kNeedsAll = false;
  static void make(const Words& words, size_t count, int waves, Number* out) {
    for (int w = 0; w < waves; ++w)
      random::kernels().uniform(words + w * kThreads, count, out + w * kThreads);
  }
};

// 53 bits of two words: above 0 and up to 1.
inline double uniform_of(uint32_t low, uint32_t high) {
  const uint64_t bits = uint64_t{low} ^ uint64_t { high } << 21;
  return static_cast<double>(bits) * 0x1p-53 + 0x1p-54;
}

struct Uniform64 {
  using Number = double;
  static constexpr int kUnroll = 2;
  static constexpr bool kNeedsAll = false;
  static void make(const Words& words, size_t count, int waves, Number* out) {
    for (int w = 0; w < waves; ++w) {
      const uint32_t *x = words + 2 * w * kThreads, *y = x + kThreads;
      for (size_t i = 0; i < count; ++i) out[w * kThreads + i] = uniform_of(x[i], y[i]);
    }
  }
};

struct Normal32 {
  using Number = float;
  static constexpr int kUnroll = 4;
  static constexpr bool kNeedsAll = false;
  static void make(const Words& words, size_t count, int waves, Number* out) {
    for (int w = 0; w < waves; w += 2) {
      const uint32_t* x = words + w * kThreads;
      random::kernels().normal(x, x + kThreads, count, out + w * kThreads, out + (w + 1) * kThreads);
    }
  }
};

// The sine and cosine of pi * turns, of turns from 0 to 2.
inline void sincos_of_half_turns(double turns, double& sine, double& cosine) {
  const int quarter = static_cast<int>(turns * 2 + 0.5);
  const double r = turns - quarter * 0.5;  // exact
  const double angle = r * 0x1.921FB54442D18p+1;
  const double rest = std::fma(r, 0x1.921FB54442D18p+1, -angle) + r * 0x1.1A62633145C07p-53;
  const double s = std::sin(angle), c = std::cos(angle);
  const double near_s = s + rest * c, near_c = c - rest * s;
  sine = (quarter & 1) != 0 ? near_c : near_s;
  cosine = (quarter & 1) != 0 ? near_s : near_c;
  if ((quarter & 2) != 0) sine = -sine;
  if (((quarter + 1) & 2) != 0) cosine = -cosine;
}

inline void normal_of(uint32_t x0, uint32_t x1, uint32_t y0, uint32_t y1, double& first, double& second) {
  const double radius = std::sqrt(-2.0 * std::log(uniform_of(x0, x1)));
  sincos_of_half_turns(2.0 * uniform_of(y0, y1), first, second);
  first *= radius;
  second *= radius;
}

struct Normal64 {
  using Number = double;
  static constexpr int kUnroll = 2;
  static constexpr bool kNeedsAll = true;
  static void make(const Words& words, size_t count, int /*waves*/, Number* out) {
    for (size_t i = 0; i < count; ++i) {
      normal_of(words[i], words[kThreads + i], words[2 * kThreads + i], words[3 * kThreads + i], out[i],
                out[kThreads + i]);
    }
  }
};

// Calls store(first, count, numbers) for runs of the elements 0 to `count`, on several threads.
template <typename Source, typename Store>
void for_numbers(int64_t count, int64_t threads, uint64_t seed, uint64_t offset, const Store& store) {
  using Number = typename Source::Number;
  constexpr auto kWidth = static_cast<int64_t>(kThreads);
  const int64_t round = threads * Source::kUnroll;
  const int64_t runs = (std::min(count, threads) + kWidth - 1) / kWidth;
  const int64_t rounds = (count + round - 1) / round;
  constexpr int64_t kGrain = 8;
  at::parallel_for(0, rounds * runs, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) Words words;
    alignas(64) Number numbers[Source::kUnroll * kThreads];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t turn = task / runs, first = task % runs * kWidth, start = turn * round + first;
      if (start >= count) continue;
      const int64_t width = std::min({kWidth, threads - first, count - start});
      const int waves =
          static_cast<int>(std::min<int64_t>(Source::kUnroll, (count - start + threads - 1) / threads));
      random::kernels().words(seed, offset / kNumbersPerCall + static_cast<uint64_t>(turn),
                              static_cast<uint64_t>(first), static_cast<size_t>(width),
                              waves * 2 <= Source::kUnroll && !Source::kNeedsAll, words);
      Source::make(words, static_cast<size_t>(width), waves, numbers);
      for (int w = 0; w < waves; ++w) {
        const int64_t place = start + w * threads;
        store(place, std::min(width, count - place), numbers + static_cast<size_t>(w) * kThreads);
      }
    }
  });
}

// Where an iterator's elements lie: by their number, in the order in which it walks.
class Places {
 public:
  explicit Places(at::TensorIteratorBase& iter)
      : data(static_cast<char*>(iter.data_ptr(0))),
        is_row(iter.ndim() <= 1),
        stride(iter.ndim() == 0 ? 0 : iter.strides(0)[0]),
        shape_(iter.shape().begin(), iter.shape().end()),
        strides_(iter.strides(0).begin(), iter.strides(0).end()) {}

  char* of(int64_t element) const {
    char* place = data;
    for (size_t i = 0; i < shape_.size(); ++i) {
      place += element % shape_[i] * strides_[i];
      element /= shape_[i];
    }
    return place;
  }

  char* const data;
  const bool is_row;  // element n lies at data + n * stride
  const int64_t stride;

 private:
  const c10::SmallVector<int64_t, 8> shape_, strides_;
};

// What numbers become where they need no loop of their own before.
template <typename F>
struct Plain {
  static constexpr bool kIsPrepared = false;
  F value_of;
  template <typename Number>
  void prepare(Number*, int64_t) const {}
};
template <typename F>
Plain(F) -> Plain<F>;

// `transform.prepare(numbers, count)` runs over numbers in place; `transform.value_of(number)` is the
// element.
template <typename T, typename Source, typename Transform>
void fill(at::TensorIteratorBase& iter, Draws& draws, const Transform& transform) {
  const int64_t count = iter.numel();
  if (count == 0) return;
  const Policy policy = policy_of(draws.grid, count, Source::kUnroll);
  const uint64_t offset = draws.take(policy.step);
  // As there: what is too large for 32 bits takes this step and then those of its parts.
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) fill<T, Source>(part, draws, transform);
    return;
  }
  using Number = typename Source::Number;
  const Places places(iter);
  const auto store = [&](int64_t first, int64_t width, Number* numbers) {
    transform.prepare(numbers, width);
    if (places.is_row && (places.stride == static_cast<int64_t>(sizeof(T)) || count == 1)) {
      T* const to = reinterpret_cast<T*>(places.data) + first;
      if constexpr (std::is_same_v<T, Number> && Transform::kIsPrepared) {
        std::copy_n(numbers, width, to);
        return;
      }
      for (int64_t i = 0; i < width; ++i) to[i] = transform.value_of(numbers[i]);
    } else {
      for (int64_t i = 0; i < width; ++i)
        *reinterpret_cast<T*>(places.of(first + i)) = transform.value_of(numbers[i]);
    }
  };
  for_numbers<Source>(count, policy.threads, draws.seed, offset, store);
}

// PyTorch's templates (ATen/native/DistributionTemplates.h) hand a generator to the kernel that they are
// given: ours finds the draws of the call here.
class Current {
 public:
  explicit Current(Draws& draws) { own = &draws; }
  ~Current() { own = nullptr; }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  static Draws& draws() { return *own; }

 private:
  static inline thread_local Draws* own = nullptr;
};
struct NoGenerator {};
using Given = const std::optional<at::Generator>&;
using Iterator = at::TensorIteratorBase;

// What CUDA's kernels compute with.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The step of fill() on a tensor.
uint64_t step_of_fill(const RandomGrid& grid, const at::Tensor& self, int64_t unroll);

}  // namespace loom::glue::cuda_random
