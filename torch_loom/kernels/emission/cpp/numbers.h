// Number formats of kernels: half precision, bfloat16, float8. Conversions have no branches, so that loops of
// them become vector instructions.
#pragma once

#include <limits>
#include <type_traits>
// The special functions of C++17, which no kernel calls, would take longer than the rest to parse.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>

namespace loom {

template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  // A multiplication moves the exponent, of subnormal numbers too.
  const float moved = bits_as<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return bits_as<float>(bits_as<uint32_t>(moved) | special | static_cast<uint32_t>(half & 0x8000u) << 16);
}

// To nearest, ties to even.
inline uint16_t float_to_half(float value) {
  const uint32_t all = bits_as<uint32_t>(value);
  const uint32_t magnitude = all & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  // The unit of 0.5f in the last place is half of the smallest subnormal number's.
  const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u : result;
  return static_cast<uint16_t>(result | (all >> 16 & 0x8000u));
}

inline uint16_t float_to_half_down(float value) {  // towards zero
  const uint32_t all = bits_as<uint32_t>(value);
  const uint32_t magnitude = all & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23)) >> 13;
  const uint32_t subnormal = static_cast<uint32_t>(bits_as<float>(magnitude) * 0x1p24f);
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7bffu : result;
  result = magnitude == 0x7f800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u : result;
  return static_cast<uint16_t>(result | (all >> 16 & 0x8000u));
}

struct f16 {
  uint16_t bits;
  f16() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit f16(T value) : bits(float_to_half(static_cast<float>(value))) {}
  operator float() const { return half_to_float(bits); }
};

// Rows of half precision, as an instruction converts them where the processor has it, in vectors as wide as
// those of the loops that read the row next: a load of two stores waits until both are in the cache. Its
// header takes longer to read than a kernel to compile.
#ifdef __F16C__
#ifdef __AVX512F__
constexpr int kAtOnce = 16;
#else
constexpr int kAtOnce = 8;
#endif
constexpr int kAhead = 1024;  // of numbers: half of that takes a tenth longer (a layer norm), as does twice
typedef float Floats __attribute__((vector_size(4 * kAtOnce), aligned(4), may_alias));
typedef short Halves __attribute__((vector_size(2 * kAtOnce), aligned(2), may_alias));
inline Floats widened(Halves halves) {
  typedef short Aligned __attribute__((vector_size(2 * kAtOnce)));
#ifdef __AVX512F__
  typedef float Result __attribute__((vector_size(4 * kAtOnce)));
  return __builtin_ia32_vcvtph2ps512_mask(static_cast<Aligned>(halves), Result{}, 0xffff, 4);
#else
  return __builtin_ia32_vcvtph2ps256(static_cast<Aligned>(halves));
#endif
}
inline Halves narrowed(Floats floats) {
  typedef float Aligned __attribute__((vector_size(4 * kAtOnce)));
#ifdef __AVX512F__
  typedef short Result __attribute__((vector_size(2 * kAtOnce)));
  return __builtin_ia32_vcvtps2ph512_mask(static_cast<Aligned>(floats), 0, Result{}, 0xffff);
#else
  return __builtin_ia32_vcvtps2ph256(static_cast<Aligned>(floats), 0);
#endif
}
#endif
// One that is far from the next: nothing becomes a vector.
inline float widen_one(f16 half) {
#ifdef __F16C__
  typedef short Aligned __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps(Aligned{static_cast<short>(half.bits)})[0];
#else
  return half_to_float(half.bits);
#endif
}
// The end of a row, or all of it without such instructions. Compilers are slow where they inline any of these.
__attribute__((noinline)) inline void widen_rest(float* to, const f16* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = half_to_float(from[i].bits);
}
__attribute__((noinline)) inline void narrow_rest(f16* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i].bits = float_to_half(from[i]);
}
__attribute__((noinline)) inline void round_rest(float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] = half_to_float(float_to_half(row[i]));
}
__attribute__((noinline)) inline void widen_row(float* to, const f16* from, int64_t count) {
  int64_t i = 0;
#ifdef __F16C__
#pragma GCC unroll 4
  for (; i + kAtOnce <= count; i += kAtOnce)
    *reinterpret_cast<Floats*>(to + i) = widened(*reinterpret_cast<const Halves*>(from + i));
#endif
  if (i < count) widen_rest(to + i, from + i, count - i);
}
__attribute__((noinline)) inline void narrow_row(f16* to, const float* from, int64_t count) {
  int64_t i = 0;
#ifdef __F16C__
#pragma GCC unroll 4
  for (; i + kAtOnce <= count; i += kAtOnce) {
    // A store that waits for its line holds up all behind it, those of the next rows of floats too.
    __builtin_prefetch(to + i + kAhead, 1);
    *reinterpret_cast<Halves*>(to + i) = narrowed(*reinterpret_cast<const Floats*>(from + i));
  }
#endif
  if (i < count) narrow_rest(to + i, from + i, count - i);
}
__attribute__((noinline)) inline void round_row(float* row, int64_t count) {
  int64_t i = 0;
#ifdef __F16C__
#pragma GCC unroll 4
  for (; i + kAtOnce <= count; i += kAtOnce)
    *reinterpret_cast<Floats*>(row + i) = widened(narrowed(*reinterpret_cast<const Floats*>(row + i)));
#endif
  if (i < count) round_rest(row + i, count - i);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t all = bits_as<uint32_t>(value);
  const uint32_t rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((all & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

struct bf16 {
  uint16_t bits;
  bf16() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit bf16(T value) : bits(float_to_bf16(static_cast<float>(value))) {}
  operator float() const { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }
};

// kFinite: no infinity, NaN is all ones (e4m3fn); kUnsigned0: NaN is minus zero (…fnuz); kIeee: as f16.
enum class Kind { kIeee, kFinite, kUnsigned0, kNoSpecials };

template <int exponent_bits, int mantissa_bits, int bias, Kind kind>
struct f8 {
  uint8_t bits;
  f8() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit f8(T value) : bits(rounded(static_cast<float>(value))) {}

  operator float() const {
    const uint32_t magnitude = bits & 0x7fu;
    // A multiplication moves the exponent, of subnormal numbers too.
    constexpr uint32_t moving = static_cast<uint32_t>(254 - bias) << 23;
    uint32_t found = bits_as<uint32_t>(bits_as<float>(magnitude << shift) * bits_as<float>(moving));
    constexpr uint32_t nan = 0x7fc00000u;
    if (kind == Kind::kIeee) found = magnitude > infinity ? nan : magnitude == infinity ? 0x7f800000u : found;
    if (kind == Kind::kFinite) found = magnitude == 0x7fu ? nan : found;
    if (kind == Kind::kUnsigned0) found = bits == 0x80u ? nan : found;
    return bits_as<float>(found | static_cast<uint32_t>(bits & 0x80u) << 24);
  }

  static constexpr int shift = 23 - mantissa_bits;
  static constexpr uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  static constexpr uint32_t highest = kind == Kind::kIeee     ? infinity - 1
                                      : kind == Kind::kFinite ? 0x7eu
                                                              : 0x7fu;

  // To nearest, ties to even; too large values become the largest, as a GPU's conversions have it.
  static uint8_t rounded(float value, bool is_down = false) {
    const uint32_t all = bits_as<uint32_t>(value);
    const uint32_t magnitude = all & 0x7fffffffu;
    const uint32_t up = is_down ? 0 : (1u << (shift - 1)) - 1 + (magnitude >> shift & 1u);
    const uint32_t normal = (magnitude + up - (static_cast<uint32_t>(127 - bias) << 23)) >> shift;
    // The unit in the last place of this number is the smallest subnormal number.
    constexpr uint32_t base = static_cast<uint32_t>(127 + 24 - bias - mantissa_bits) << 23;
    constexpr uint32_t counting = static_cast<uint32_t>(127 - 1 + bias + mantissa_bits) << 23;
    const float positive = bits_as<float>(magnitude);
    const uint32_t subnormal =
        is_down ? static_cast<uint32_t>(static_cast<int32_t>(
                      magnitude < smallest_normal ? positive * bits_as<float>(counting) : 0.f))
                : bits_as<uint32_t>(positive + bits_as<float>(base)) - base;
    uint32_t result = magnitude < smallest_normal ? subnormal : normal;
    result = result > highest ? highest : result;
    result |= all >> 24 & 0x80u;
    if (kind == Kind::kUnsigned0) result = result == 0x80u ? 0 : result;
    const uint32_t nan = kind == Kind::kUnsigned0 ? 0x80u : (all >> 24 & 0x80u) | 0x7fu;
    return static_cast<uint8_t>(magnitude > 0x7f800000u ? nan : result);
  }

  static constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
};

using f8E5M2 = f8<5, 2, 15, Kind::kIeee>;
using f8E4M3FN = f8<4, 3, 7, Kind::kFinite>;
using f8E4M3B11FNUZ = f8<4, 3, 15, Kind::kNoSpecials>;  // Triton's fp8e4b15
using f8E4M3FNUZ = f8<4, 3, 8, Kind::kUnsigned0>;
using f8E5M2FNUZ = f8<5, 2, 16, Kind::kUnsigned0>;

// Towards zero, where a kernel asks for it.
template <typename T>
inline T rounded_down(double value) {
  T result(static_cast<float>(value));
  if constexpr (std::is_same_v<T, f16>) {
    result.bits = float_to_half_down(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bf16>) {
    result.bits = static_cast<uint16_t>(bits_as<uint32_t>(static_cast<float>(value)) >> 16);
  } else if constexpr (sizeof(T) == 1) {
    result.bits = T::rounded(static_cast<float>(value), true);
  } else if constexpr (std::is_same_v<T, float>) {
    if (fabs(static_cast<double>(result)) > fabs(value)) result = nextafterf(result, 0.f);
  }
  return result;
}

template <typename T>
inline T from_bits(uint64_t bits) {
  T result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// 10 bits of mantissa, as the conversion of a GPU rounds float32: to nearest, ties away from zero.
inline float tf32(float value) {
  const uint32_t all = bits_as<uint32_t>(value);
  const uint32_t rounded = (all + 0x1000u) & 0xffffe000u;
  return bits_as<float>((all & 0x7f800000u) == 0x7f800000u ? all : rounded);
}
// As its tensor cores read float32: what is behind these bits is cut off.
inline float cut_to_tf32(float value) { return bits_as<float>(bits_as<uint32_t>(value) & 0xffffe000u); }

// A float as a whole number: out of range, the nearest one; NaN is zero. So do a GPU's conversions.
template <typename T>
inline T whole(double value) {
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value != value) return 0;
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}
inline int32_t whole_i32(float value) {
  const float kept = value > -2147483648.f ? value : -2147483648.f;
  return value >= 2147483648.f ? 2147483647 : static_cast<int32_t>(value == value ? kept : 0.f);
}

// Registers of inline assembly have a width and no type.
template <typename R, typename T>
inline R to_register(T value) {
  R result{};
  if constexpr (std::is_same_v<T, bool>) {
    result = static_cast<R>(value);
  } else {
    memcpy(&result, &value, sizeof(R) < sizeof(T) ? sizeof(R) : sizeof(T));
  }
  return result;
}
template <typename T, typename R>
inline T from_register(R value) {
  return to_register<T, R>(value);
}

}  // namespace loom
