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
    const bool has =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
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

}  // namespace scalar

}  // namespace loom::numerics
