// Whole numbers, and permutations.
#include <ATen/Dispatch_v2.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "torch/random/nullary.h"
#include "torch/random/ops.h"
#include "torch/random/thread_state.h"

namespace loom::glue::cuda_random {

namespace {

// From so many values on, a number is made of two words.
constexpr uint64_t kManyValues = uint64_t{1} << 28;

template <typename>
struct FromToKernel {
  void operator()(Iterator& iter, uint64_t range, int64_t base, Given) {
    AT_DISPATCH_V2(
        iter.dtype(), "random_from_to_kernel_cuda", AT_WRAP([&] {
          const Plain reduced{[=](uint64_t word) {
            return static_cast<scalar_t>(static_cast<int64_t>(word % range) + base);
          }};
          if (range >= kManyValues) {
            fill<scalar_t, Words64>(iter, Current::draws(), reduced);
          } else {
            const auto few = static_cast<uint32_t>(range);
            fill<scalar_t, Words32>(iter, Current::draws(), Plain{[=](uint32_t word) {
                                      return static_cast<scalar_t>(static_cast<int64_t>(word % few) + base);
                                    }});
          }
        }),
        AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  }
  // All of 64 bits.
  void operator()(Iterator& iter, Given) {
    AT_DISPATCH_ALL_TYPES_AND(at::kBFloat16, iter.dtype(), "random_full_64_bits_range_kernel_cuda", [&] {
      if constexpr (std::is_same_v<scalar_t, int64_t> || std::is_same_v<scalar_t, double> ||
                    std::is_same_v<scalar_t, float> || std::is_same_v<scalar_t, at::BFloat16>) {
        fill<scalar_t, Words64>(iter, Current::draws(), Plain{[](uint64_t word) {
                                  return static_cast<scalar_t>(static_cast<int64_t>(word));
                                }});
      } else {
        TORCH_CHECK(false,
                    "random_full_64_bits_range_kernel_cuda handles only int64, double, float and bfloat16");
      }
    });
  }
};

// The number of values of random_() without bounds: those that the dtype counts without a gap.
template <typename T>
constexpr uint64_t values_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return 2;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1;
  } else {
    return (uint64_t{1} << std::numeric_limits<T>::digits) + 1;
  }
}

template <typename>
struct AllKernel {
  void operator()(Iterator& iter, Given) {
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, iter.dtype(), "random_kernel_cuda", [&] {
      constexpr bool kIsWide = std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, int64_t>;
      using Source = std::conditional_t<kIsWide, Words64, Words32>;
      fill<scalar_t, Source>(iter, Current::draws(), Plain{[](typename Source::Number word) {
                               return static_cast<scalar_t>(word % values_of<scalar_t>());
                             }});
    });
  }
};

Results fill_all(Arguments arguments, Draws& draws) {
  const Current scope(draws);
  at::Tensor self = arguments[0].toTensor();
  templates::random_impl<AllKernel, NoGenerator>(self, std::nullopt);
  return {self};
}

Results fill_from(Arguments arguments, Draws& draws) {
  const Current scope(draws);
  at::Tensor self = arguments[0].toTensor();
  templates::random_from_to_impl<FromToKernel, NoGenerator>(self, arguments[1].toInt(),
                                                            arguments[2].toOptional<int64_t>(), std::nullopt);
  return {self};
}

Results fill_to(Arguments arguments, Draws& draws) {
  const Current scope(draws);
  at::Tensor self = arguments[0].toTensor();
  templates::random_from_to_impl<FromToKernel, NoGenerator>(self, 0, arguments[1].toInt(), std::nullopt);
  return {self};
}

uint64_t step_all(const RandomGrid& grid, Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_wide = self.scalar_type() == at::kDouble || self.scalar_type() == at::kLong;
  return step_of_fill(grid, self, is_wide ? 2 : 4);
}

// How many values there are between bounds, as random_from_to_impl() counts them; 0: all of 64 bits. Bounds
// that it refuses need no right answer.
uint64_t range_of(const at::Tensor& self, int64_t from, std::optional<int64_t> to) {
  const bool is_real = self.is_floating_point();
  uint64_t range = 0;
  const auto count = [&]<typename T>(T) {
    if constexpr (std::is_integral_v<T>) {
      if (to.has_value()) {
        range = static_cast<uint64_t>(*to) - static_cast<uint64_t>(from);
      } else {
        range = static_cast<uint64_t>(std::numeric_limits<T>::max()) - static_cast<uint64_t>(from) + 1;
      }
    } else {
      const int64_t first = templates::update_from<T>(from);
      const int64_t last =
          to.has_value() ? templates::update_to<T>(*to) : (int64_t{1} << std::numeric_limits<T>::digits) + 1;
      range = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
    }
  };
  if (!to.has_value() && from == std::numeric_limits<int64_t>::lowest()) return 0;
  if (is_real) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "random_range",
                                    [&] { count(scalar_t()); });
  } else {
    AT_DISPATCH_V2(self.scalar_type(), "random_range", AT_WRAP([&] { count(scalar_t()); }),
                   AT_EXPAND(AT_INTEGRAL_TYPES_V2), at::kBool);
  }
  return range;
}

uint64_t step_of_range(const RandomGrid& grid, const at::Tensor& self, int64_t from,
                       std::optional<int64_t> to) {
  const uint64_t range = range_of(self, from, to);
  return step_of_fill(grid, self, range == 0 || range >= kManyValues ? 2 : 4);
}

uint64_t step_from(const RandomGrid& grid, Arguments arguments) {
  return step_of_range(grid, arguments[0].toTensor(), arguments[1].toInt(),
                       arguments[2].toOptional<int64_t>());
}

uint64_t step_to(const RandomGrid& grid, Arguments arguments) {
  return step_of_range(grid, arguments[0].toTensor(), 0, arguments[1].toInt());
}

// So many bits of a key make it likely (0.9) that all of `count` keys differ.
int key_bits(int64_t count) {
  const double n = static_cast<double>(count), limit = 12 * std::log(0.9);
  return std::min(64, static_cast<int>(std::ceil(std::log2(n - (6 * n * n + 1) / limit))));
}

// Keys in 64-bit words, whose lower bits order the permutation.
template <typename Key>
std::vector<uint64_t> draw_keys(int64_t count, int bits, Draws& draws) {
  constexpr auto kLow = std::numeric_limits<Key>::min(), kHigh = std::numeric_limits<Key>::max();
  constexpr uint64_t kRange = static_cast<uint64_t>(kHigh) - static_cast<uint64_t>(kLow);
  const Policy policy = policy_of(draws.grid, count, Words64::kUnroll);
  std::vector<uint64_t> keys(static_cast<size_t>(count));
  // A sort takes signed keys in their order: where all bits count, the sign's is turned around.
  const bool is_whole = bits == 8 * static_cast<int>(sizeof(Key));
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t sign = is_whole ? uint64_t{1} << (bits - 1) : 0;
  for_numbers<Words64>(count, policy.threads, draws.seed, draws.take(policy.step),
                       [&](int64_t first, int64_t width, const uint64_t* words) {
                         for (int64_t i = 0; i < width; ++i) {
                           const uint64_t key = words[i] % kRange + static_cast<uint64_t>(int64_t{kLow});
                           keys[static_cast<size_t>(first + i)] = (key & mask) ^ sign;
                         }
                       });
  return keys;
}

Results permutation(Arguments arguments, Draws& draws) {
  const int64_t count = arguments[0].toInt();
  const at::Tensor& out = arguments[2].toTensor();
  TORCH_CHECK(count >= 0, "n must be non-negative, got", count);
  at::native::check_supported_max_int_with_precision(count, out);
  if (count == 0) return {at::empty({0}, out.options())};
  const int bits = key_bits(count);
  const std::vector<uint64_t> keys =
      bits <= 32 ? draw_keys<int32_t>(count, bits, draws) : draw_keys<int64_t>(count, bits, draws);
  at::Tensor order = at::arange(count, out.options().dtype(at::kLong));
  auto* const places = order.mutable_data_ptr<int64_t>();
  const auto key_of = [&](int64_t place) { return keys[static_cast<size_t>(place)]; };
  std::stable_sort(places, places + count, [&](int64_t a, int64_t b) { return key_of(a) < key_of(b); });
  // What has the same key is shuffled by the thread of its first place.
  const uint64_t offset = draws.take(static_cast<uint64_t>(count));
  for (int64_t first = 0; first + 1 < count;) {
    int64_t size = 1;
    while (first + size < count && key_of(places[first + size]) == key_of(places[first])) ++size;
    if (size > 1) {
      ThreadState state(draws.seed, static_cast<uint64_t>(first), offset);
      for (int64_t i = size - 1; i > 0; --i)
        std::swap(places[first + i], places[first + state.word() % static_cast<uint32_t>(i + 1)]);
    }
    first += size;
  }
  return {order.to(out.scalar_type())};
}

uint64_t step_permutation(const RandomGrid& grid, Arguments arguments) {
  const int64_t count = arguments[0].toInt();
  if (count <= 0) return 0;
  return policy_of(grid, count, Words64::kUnroll).step + rounded_step(static_cast<uint64_t>(count));
}

constexpr RandomOp kIntegersRows[] = {
    {"aten::random_", step_all, fill_all},
    {"aten::random_.from", step_from, fill_from},
    {"aten::random_.to", step_to, fill_to},
    {"aten::randperm.generator_out", step_permutation, permutation},
};

}  // namespace

const c10::ArrayRef<RandomOp> kIntegerOps = kIntegersRows;

}  // namespace loom::glue::cuda_random
