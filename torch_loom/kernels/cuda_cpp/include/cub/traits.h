// What cub knows of types: their kind, their bits, their largest and lowest values.
#pragma once

#include <type_traits>

#include "cub/common.h"
#include "cub/radix.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"

namespace cub {

enum Category { NOT_A_NUMBER, SIGNED_INTEGER, UNSIGNED_INTEGER, FLOATING_POINT };

namespace loom_detail {

template <typename T>
static constexpr bool kIsSmallFloat = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> ||
                                      std::is_same_v<T, __nv_fp8_e4m3> || std::is_same_v<T, __nv_fp8_e5m2>;
template <typename T>
static constexpr Category category_of() {
  if constexpr (std::is_floating_point_v<T> || kIsSmallFloat<T>) {
    return FLOATING_POINT;
  } else if constexpr (std::is_same_v<T, __int128>) {
    return SIGNED_INTEGER;
  } else if constexpr (std::is_same_v<T, unsigned __int128>) {
    return UNSIGNED_INTEGER;
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_unsigned_v<T> ? UNSIGNED_INTEGER : SIGNED_INTEGER;
  } else {
    return NOT_A_NUMBER;
  }
}
template <typename T>
static inline T of_bits(typename BitsOf<sizeof(T)>::type bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}
// The bits of the largest finite number.
template <typename T>
static constexpr typename BitsOf<sizeof(T)>::type largest_bits() {
  if constexpr (std::is_same_v<T, __half>) {
    return 0x7BFF;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return 0x7F7F;
  } else if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
    return 0x7E;
  } else if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) {
    return 0x7B;
  } else if constexpr (sizeof(T) == 4) {
    return 0x7F7FFFFF;
  } else {
    return 0x7FEFFFFFFFFFFFFF;
  }
}

}  // namespace loom_detail

template <Category category, bool is_primitive, bool is_null, typename Bits, typename T>
struct BaseTraits {
  static constexpr Category CATEGORY = category;
  static constexpr bool PRIMITIVE = is_primitive;
  static constexpr bool NULL_TYPE = is_null;
};
template <typename Bits, typename T>
struct BaseTraits<UNSIGNED_INTEGER, true, false, Bits, T> {
  using UnsignedBits = Bits;
  static constexpr Category CATEGORY = UNSIGNED_INTEGER;
  static constexpr bool PRIMITIVE = true, NULL_TYPE = false;
  static constexpr Bits LOWEST_KEY = 0, MAX_KEY = static_cast<Bits>(~Bits(0));
  static Bits TwiddleIn(Bits key) { return key; }
  static Bits TwiddleOut(Bits key) { return key; }
  static T Max() { return static_cast<T>(MAX_KEY); }
  static T Lowest() { return static_cast<T>(LOWEST_KEY); }
};
template <typename Bits, typename T>
struct BaseTraits<SIGNED_INTEGER, true, false, Bits, T> {
  using UnsignedBits = Bits;
  static constexpr Category CATEGORY = SIGNED_INTEGER;
  static constexpr bool PRIMITIVE = true, NULL_TYPE = false;
  static constexpr Bits HIGH_BIT = static_cast<Bits>(Bits(1) << (8 * sizeof(Bits) - 1));
  static constexpr Bits LOWEST_KEY = HIGH_BIT, MAX_KEY = static_cast<Bits>(~HIGH_BIT);
  static Bits TwiddleIn(Bits key) { return static_cast<Bits>(key ^ HIGH_BIT); }
  static Bits TwiddleOut(Bits key) { return static_cast<Bits>(key ^ HIGH_BIT); }
  static T Max() { return static_cast<T>(MAX_KEY); }
  static T Lowest() { return static_cast<T>(LOWEST_KEY); }
};
template <typename Bits, typename T>
struct BaseTraits<FLOATING_POINT, true, false, Bits, T> {
  using UnsignedBits = Bits;
  static constexpr Category CATEGORY = FLOATING_POINT;
  static constexpr bool PRIMITIVE = true, NULL_TYPE = false;
  static constexpr Bits HIGH_BIT = static_cast<Bits>(Bits(1) << (8 * sizeof(Bits) - 1));
  static constexpr Bits LOWEST_KEY = static_cast<Bits>(~Bits(0)), MAX_KEY = static_cast<Bits>(~HIGH_BIT);
  static Bits TwiddleIn(Bits key) {
    return static_cast<Bits>(key ^ (key & HIGH_BIT ? LOWEST_KEY : HIGH_BIT));
  }
  static Bits TwiddleOut(Bits key) {
    return static_cast<Bits>(key ^ (key & HIGH_BIT ? HIGH_BIT : LOWEST_KEY));
  }
  static T Max() { return loom_detail::of_bits<T>(loom_detail::largest_bits<T>()); }
  static T Lowest() {
    return loom_detail::of_bits<T>(static_cast<Bits>(loom_detail::largest_bits<T>() | HIGH_BIT));
  }
};

namespace loom_detail {
template <typename T, Category category = category_of<T>()>
struct TraitsOf {
  using type = BaseTraits<category, true, false, typename BitsOf<sizeof(T)>::type, T>;
};
template <typename T>
struct TraitsOf<T, NOT_A_NUMBER> {
  using type = BaseTraits<NOT_A_NUMBER, false, std::is_same_v<T, NullType>, T, T>;
};
}  // namespace loom_detail

template <typename T>
struct NumericTraits : loom_detail::TraitsOf<T>::type {};
template <typename T>
struct Traits : NumericTraits<std::remove_cv_t<T>> {};
template <typename T>
struct FpLimits {
  static T Max() { return Traits<T>::Max(); }
  static T Lowest() { return Traits<T>::Lowest(); }
};

template <bool condition, typename Then, typename Else>
struct If {
  using Type = std::conditional_t<condition, Then, Else>;
};
template <typename A, typename B>
struct Equals {
  enum { VALUE = std::is_same_v<A, B>, NEGATE = !VALUE };
};
template <typename T>
struct IsPointer {
  enum { VALUE = std::is_pointer_v<T> };
};
template <typename T>
struct IsVolatile {
  enum { VALUE = std::is_volatile_v<T> };
};
template <typename T>
struct RemoveQualifiers {
  using Type = std::remove_cv_t<T>;
};

// Numbers by the name of a vector: float4 for CubVector<float, 4>.
template <typename T, int n>
struct CubVector;
#define LOOM_CUDA_VECTORS(T, name)   \
  template <>                        \
  struct CubVector<T, 1> : name##1 { \
    using BaseType = T;              \
    using Type = name##1;            \
  };                                 \
  template <>                        \
  struct CubVector<T, 2> : name##2 { \
    using BaseType = T;              \
    using Type = name##2;            \
  };                                 \
  template <>                        \
  struct CubVector<T, 3> : name##3 { \
    using BaseType = T;              \
    using Type = name##3;            \
  };                                 \
  template <>                        \
  struct CubVector<T, 4> : name##4 { \
    using BaseType = T;              \
    using Type = name##4;            \
  };
LOOM_CUDA_VECTORS(char, char)
LOOM_CUDA_VECTORS(signed char, char)
LOOM_CUDA_VECTORS(unsigned char, uchar)
LOOM_CUDA_VECTORS(short, short)
LOOM_CUDA_VECTORS(unsigned short, ushort)
LOOM_CUDA_VECTORS(int, int)
LOOM_CUDA_VECTORS(unsigned, uint)
LOOM_CUDA_VECTORS(long long, longlong)
LOOM_CUDA_VECTORS(unsigned long long, ulonglong)
LOOM_CUDA_VECTORS(float, float)
LOOM_CUDA_VECTORS(double, double)
#undef LOOM_CUDA_VECTORS

}  // namespace cub
