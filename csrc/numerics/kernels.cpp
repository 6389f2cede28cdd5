#include "numerics/kernels.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <string_view>

#include "numerics/scalar.h"

namespace loom::numerics {

namespace baseline {
const Kernels& table();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels& table();
}
namespace avx512 {
const Kernels& table();
}
#endif

namespace {

std::atomic<const Kernels*> chosen_kernels{nullptr};

uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace

const Kernels* kernels_named(const char* name) {
  const std::string_view wanted = name;
#if defined(__x86_64__)
  if (wanted == "avx512") {
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return has ? &avx512::table() : nullptr;
  }
  if (wanted == "avx2") {
    const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return has ? &avx2::table() : nullptr;
  }
#endif
  return wanted == "baseline" ? &baseline::table() : nullptr;
}

const Kernels& kernels() {
  if (const Kernels* chosen = chosen_kernels.load(std::memory_order_relaxed)) return *chosen;
  static const Kernels* best = [] {
    for (const char* name : {"avx512", "avx2"}) {
      if (const Kernels* found = kernels_named(name)) return found;
    }
    return kernels_named("baseline");
  }();
  return *best;
}

void use_kernels(const Kernels* chosen) { chosen_kernels.store(chosen, std::memory_order_relaxed); }

Accumulate accumulate_of(Format format) {
  const double infinity = HUGE_VAL;
  // The least value that rounds up to the smallest normal: half a step of the denormals below it, a tie that
  // goes to the even neighbour.
  switch (format) {
    case Format::kFloat16:
      return {42, bits_of(0x1p-14), bits_of(0x1p-14 - 0x1p-25), bits_of(65504.0), bits_of(65504.0)};
    case Format::kFloat16_b:
      return {45, bits_of(0x1p-126), bits_of(0x1p-126 - 0x1p-134), bits_of(0x1.fep127), bits_of(infinity)};
    default:
      return {29, bits_of(0x1p-126), bits_of(0x1p-126 - 0x1p-150), bits_of(0x1.fffffep127),
              bits_of(infinity)};
  }
}

namespace scalar {

void quantize_block(Format format, const float* in, float* out, int64_t count, Counts& counts) {
  const int bits = magnitude_bits(format);
  uint32_t largest = 0;
  bool has_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t absolute = bits_of(in[i]) & ~kSign;
    has_nan |= absolute > kInfinity;
    counts.values += absolute == kInfinity;
    if (absolute == kInfinity) absolute = kLargest;
    largest = absolute > largest ? absolute : largest;
  }
  if (has_nan) {
    ++counts.blocks;
    for (int64_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(kNaN);
    return;
  }
  const int exponent = static_cast<int>(largest >> 23);
  const BlockScale scale = scale_of(exponent, bits, has_short_exponent(format));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t sign = bits_of(in[i]) & kSign;
    uint32_t absolute = bits_of(in[i]) & ~kSign;
    if (absolute == kInfinity) absolute = kLargest;
    uint32_t magnitude = scale.is_zero ? 0 : magnitude_of(absolute, exponent, bits);
    if (scale.is_saturated && magnitude != 0) magnitude = (1u << bits) - 1;
    out[i] = std::bit_cast<float>(magnitude == 0 ? 0u : sign | scaled(magnitude, scale.power));
  }
}

void strict_product(const StrictProduct& product, int64_t panel_width, int64_t first_row, int64_t last_row) {
  const int64_t depth = product.depth;
  for (int64_t row = first_row; row < last_row; ++row) {
    for (int64_t column = 0; column < product.columns; ++column) {
      const int64_t place = column / panel_width * depth * panel_width + column % panel_width;
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t right = place + k * panel_width, left = row * depth + k;
        const double a = product.right_high[right], b = product.left_high[left];
        sum += a * b;
        if (std::isfinite(a) && std::isfinite(b)) {
          if (product.num_passes > 1) sum += product.right_low[right] * b;
          if (product.num_passes > 2) sum += a * product.left_low[left];
          if (product.num_passes > 3) sum += product.right_low[right] * product.left_low[left];
        }
        if (k % kBlock == kBlock - 1 || k == depth - 1) sum = rounded_sum(sum, product.accumulate);
      }
      product.out[row * product.out_stride + column] = static_cast<float>(sum);
    }
  }
}

}  // namespace scalar

}  // namespace loom::numerics
