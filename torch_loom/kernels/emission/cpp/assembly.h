// What instructions of PTX do that C++ has no operator for: of kernels with inline assembly, in Triton and in
// CUDA C++.
#pragma once

#include <time.h>

#include "functions.h"

namespace loom {

inline uint64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Registers have a width and no type: what an instruction reads as its own type, and what it writes. Those of
// CUDA C++ are the program's variables.
template <typename T>
constexpr bool kIsWhole = std::is_integral_v<T> || std::is_enum_v<T>;
template <typename T, typename V>
inline T as(const V& value) {
  if constexpr (std::is_same_v<T, V>) {
    return value;
  } else if constexpr (std::is_pointer_v<V>) {
    return static_cast<T>(reinterpret_cast<uintptr_t>(value));
  } else if constexpr (kIsWhole<T> && kIsWhole<V>) {
    return static_cast<T>(value);
  } else {
    static_assert(sizeof(T) == sizeof(V) || (kIsWhole<V> && sizeof(T) < sizeof(V)),
                  "an operand has another size than its instruction");
    T result;
    memcpy(&result, &value, sizeof(T));
    return result;
  }
}
template <typename V, typename T>
inline void put(V& to, const T& value) {
  if constexpr (std::is_pointer_v<V>) {
    to = reinterpret_cast<V>(as<uintptr_t>(value));
  } else if constexpr (kIsWhole<V> && !kIsWhole<T> && sizeof(T) < sizeof(V)) {
    V bits{};
    memcpy(&bits, &value, sizeof(T));
    to = bits;
  } else {
    to = as<V>(value);
  }
}

// Parts of a register, the first one in its lowest bits.
template <typename T, typename R>
inline T part_of(R value, int number) {
  return from_register<T>(static_cast<uint64_t>(value) >> (number * sizeof(T) * 8));
}
template <typename R, typename T>
inline void set_part(R& value, int number, T part) {
  uint64_t bits = 0;
  memcpy(&bits, &part, sizeof part);
  value = static_cast<R>(value | bits << (number * sizeof(T) * 8));
}

// Four bits, which have no infinity and no NaN; two are a byte.
struct e2m1 {
  uint8_t bits;
  e2m1() = default;
  explicit e2m1(float value) {
    constexpr float middles[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.f};
    const float magnitude = value != value ? 6.f : fabsf(value);
    int code = 0;
    // Ties go to the code that is even.
    for (int i = 0; i < 7; ++i) code += i % 2 == 0 ? magnitude > middles[i] : magnitude >= middles[i];
    bits = static_cast<uint8_t>(code | (value == value && std::signbit(value) ? 8 : 0));
  }
  operator float() const {
    constexpr float magnitudes[8] = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
    return bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
  }
};
// A power of two; conversions round up.
struct ue8m0 {
  uint8_t bits;
  ue8m0() = default;
  explicit ue8m0(float value) {
    const uint32_t all = bits_as<uint32_t>(value) & 0x7fffffffu;
    uint32_t up = (all >> 23) + ((all & 0x7fffffu) != 0);
    if (all != 0 && all <= 0x400000u) up = 0;
    bits = static_cast<uint8_t>(all > 0x7f800000u ? 255u : up > 254u ? 254u : up);
  }
  operator float() const { return bits == 255 ? NAN : ldexpf(1.f, bits - 127); }
};

template <typename E, typename R>
inline E half_of(R pair, int number) {
  E element;
  if constexpr (std::is_same_v<E, e2m1>) {
    element.bits = static_cast<uint8_t>(pair >> (number * 4) & 15);
  } else {
    element = part_of<E>(pair, number);
  }
  return element;
}
template <typename R, typename E>
inline R paired(E lower, E upper) {
  if constexpr (std::is_same_v<E, e2m1>) return static_cast<R>(lower.bits | upper.bits << 4);
  R result{};
  set_part(result, 0, lower);
  set_part(result, 1, upper);
  return result;
}
template <typename E, typename R, typename Function, typename... Pairs>
inline R in_pairs(Function function, Pairs... pairs) {
  return paired<R>(function(half_of<E>(pairs, 0)...), function(half_of<E>(pairs, 1)...));
}
// The last bit is set where the number is not exact: what is rounded after this is rounded once.
inline float rounded_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double found = nearest;
  if (found == value || value != value) return nearest;
  return bits_as<float>((bits_as<uint32_t>(nearest) - (fabs(found) > fabs(value))) | 1u);
}
template <typename T>
inline T toward_zero(double value) {
  if (value != value) return T(static_cast<float>(value));
  return rounded_down<T>(std::is_same_v<T, float> ? value : static_cast<double>(rounded_to_odd(value)));
}
template <typename E, typename R, bool is_down>
inline R pair_of(float lower, float upper) {
  if constexpr (is_down && !std::is_same_v<E, ue8m0> && !std::is_same_v<E, e2m1>)
    return paired<R>(toward_zero<E>(lower), toward_zero<E>(upper));
  return paired<R>(E(lower), E(upper));
}
template <typename E, typename R, typename From, typename S>
inline R pair_converted(S pair) {
  return pair_of<E, R, false>(half_of<From>(pair, 0), half_of<From>(pair, 1));
}

// Codes of a format: how many bits they have, and which one is the greatest number.
template <typename E>
constexpr int kCodeBits = std::is_same_v<E, e2m1> ? 4 : static_cast<int>(sizeof(E) * 8);
template <typename E>
constexpr uint32_t kGreatest = std::is_same_v<E, e2m1>       ? 7
                               : std::is_same_v<E, f8E4M3FN> ? 0x7e
                               : std::is_same_v<E, f8E5M2>   ? 0x7b
                               : std::is_same_v<E, f16>      ? 0x7bff
                                                             : 0x7f7f;

// The number of a format next to a value on either side, by a share of 256 that is chance.
template <typename E, bool is_finite>
inline E by_chance(float value, uint32_t share) {
  E found(value);
  const float magnitude = fabsf(value);
  if (value != value || (!is_finite && sizeof(E) == 2 && fabsf(static_cast<float>(found)) == INFINITY))
    return found;
  uint32_t code = kGreatest<E>;
  found.bits = static_cast<decltype(found.bits)>(code);
  if (magnitude < static_cast<float>(found)) {
    found = E(magnitude);
    // Codes of numbers without a sign are in the order of the numbers.
    if (static_cast<float>(found) > magnitude) --found.bits;
    code = found.bits;
    const float below = static_cast<float>(found);
    ++found.bits;
    const float above = static_cast<float>(found);
    if ((magnitude - below) * 256.f >= (256.f - static_cast<float>(share)) * (above - below)) ++code;
  }
  if (std::signbit(value)) code |= 1u << (kCodeBits<E> - 1);
  found.bits = static_cast<decltype(found.bits)>(code);
  return found;
}
template <typename E, typename R, int count, bool is_finite>
inline R by_chance(const float (&values)[count], uint32_t shares) {
  R result{};
  for (int i = 0; i < count; ++i) {
    const uint32_t share = shares >> (i * (32 / count)) & 255u;
    result = static_cast<R>(result | static_cast<R>(by_chance<E, is_finite>(values[i], share).bits)
                                         << (i * kCodeBits<E>));
  }
  return result;
}

template <typename T>
inline T kept_in_unit(T value) {
  return value != value || value < 0 ? T(0.f) : value > 1 ? T(1.f) : value;
}
// exp2() with subnormal results: what is added to the exponent is exact.
template <typename F>
inline F power_of_2(F x) {
  return exp2(x < -64 ? x + 64 : x) * (x < -64 ? static_cast<F>(0x1p-64) : F(1));
}
template <typename T>
inline T unfused(T value) {
#if defined(__has_builtin) && __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(value);
#else
  const volatile T kept = value;
  return kept;
#endif
}
// A product and a sum of small numbers, rounded once: their product is exact, and the last bit of the sum is
// set where that is not.
template <typename T>
inline T fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c, part = sum - product;
  const double rest = (product - (sum - part)) + (c - part);
  const uint64_t bits = bits_as<uint64_t>(sum);
  const bool is_exact = rest == 0 || rest != rest || (bits & 1u);
  return T(rounded_to_odd(is_exact ? sum : bits_as<double>((rest > 0) == (sum > 0) ? bits | 1u : bits - 1)));
}
// Of two zeros, the negative one is less.
template <typename F>
inline F lesser(F a, F b, F otherwise) {
  return a == b ? (std::signbit(a) ? a : b) : otherwise;
}
template <typename F>
inline F greater(F a, F b, F otherwise) {
  return a == b ? (std::signbit(a) ? b : a) : otherwise;
}
template <typename T>
inline T whole_or_highest_bit(double value) {
  using U = std::make_unsigned_t<T>;
  return value == value ? whole<T>(value) : static_cast<T>(static_cast<U>(U{1} << (sizeof(T) * 8 - 1)));
}
template <typename T, typename F>
inline T whole_in_range(F value) {
  using Wide = __int128;
  const Wide low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max(), wide = value;
  return static_cast<T>(wide < low ? low : wide > high ? high : wide);
}
template <typename F>
inline F with_signs(F magnitude, F a, F b) {
  return magnitude != magnitude ? magnitude : std::signbit(a) != std::signbit(b) ? -magnitude : magnitude;
}

template <typename T>
inline T high_half(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (sizeof(T) * 8));
}
inline uint32_t low_24(uint32_t value) { return value & 0xffffffu; }
inline int32_t low_24(int32_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value) << 8) >> 8; }
template <typename T>
inline uint32_t leading_zeros(T value) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  return bits == 0 ? sizeof(T) * 8 : static_cast<uint32_t>(__builtin_clzll(bits)) - (64 - sizeof(T) * 8);
}
template <typename T>
inline T reversed_bits(T value) {
  T result{};
  for (unsigned i = 0; i < sizeof(T) * 8; ++i)
    result = static_cast<T>(result | (value >> i & 1) << (sizeof(T) * 8 - 1 - i));
  return result;
}
// Each digit of `chosen` names a byte of the two words; with the highest bit of the digit, its sign.
inline uint32_t permuted_bytes(uint32_t a, uint32_t b, uint32_t chosen) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t digit = chosen >> (i * 4) & 15u;
    uint32_t byte = static_cast<uint32_t>(both >> ((digit & 7u) * 8)) & 0xffu;
    if (digit & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    result |= byte << (i * 8);
  }
  return result;
}
// The table has a bit for each combination of the three bits, the first one's the highest of its number.
inline uint32_t logic_of_3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 8; ++i)
    if (table >> i & 1u) result |= (i & 4u ? a : ~a) & (i & 2u ? b : ~b) & (i & 1u ? c : ~c);
  return result;
}
template <typename T>
inline T bits_extracted(T value, uint32_t at, uint32_t count) {
  constexpr uint32_t bits = sizeof(T) * 8;
  at &= 0xffu;
  count &= 0xffu;
  if (count == 0) return 0;
  const bool is_signed = std::is_signed_v<T>;
  const uint32_t last = at + count - 1 < bits - 1 ? at + count - 1 : bits - 1;
  const bool sign = is_signed && (static_cast<uint64_t>(value) >> last & 1u);
  T result = 0;
  for (uint32_t i = 0; i < bits; ++i) {
    const bool bit = i < count && at + i < bits ? static_cast<uint64_t>(value) >> (at + i) & 1u : sign;
    result = static_cast<T>(result | static_cast<T>(static_cast<uint64_t>(bit) << i));
  }
  return result;
}
template <typename T>
inline T bits_inserted(T value, T into, uint32_t at, uint32_t count) {
  constexpr uint32_t bits = sizeof(T) * 8;
  at &= 0xffu;
  count &= 0xffu;
  for (uint32_t i = 0; i < count && at + i < bits; ++i) {
    const T bit = static_cast<T>(T{1} << (at + i));
    into = static_cast<T>(value >> i & 1 ? into | bit : into & ~bit);
  }
  return into;
}
// The second word in front of the first.
inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t count) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) << count >> 32);
}
inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t count) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> count);
}
template <typename A, typename B>
inline uint32_t product_of_bytes(uint32_t a, uint32_t b, uint32_t sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(part_of<A>(a, i) * part_of<B>(b, i));
  return sum;
}

}  // namespace loom
