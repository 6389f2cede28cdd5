// The order of a radix sort: by bits of the keys, whose order is the numbers' own.
#pragma once

#include <string.h>

#include <algorithm>
#include <type_traits>

#include "cub/common.h"

namespace cub {
namespace loom_detail {

template <size_t bytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = unsigned char;
};
template <>
struct BitsOf<2> {
  using type = unsigned short;
};
template <>
struct BitsOf<4> {
  using type = unsigned;
};
template <>
struct BitsOf<8> {
  using type = unsigned long long;
};
template <>
struct BitsOf<16> {
  using type = unsigned __int128;
};

// Both zeros are equal, and NaN is behind all numbers.
template <typename K>
static inline auto ordered_bits(const K& key) {
  using Bits = typename BitsOf<sizeof(K)>::type;
  constexpr Bits kSign = Bits(1) << (8 * sizeof(K) - 1);
  Bits bits;
  memcpy(&bits, &key, sizeof(K));
  if constexpr (std::is_same_v<K, bool> || std::is_unsigned_v<K> || std::is_same_v<K, unsigned __int128>) {
    return bits;
  } else if constexpr (std::is_integral_v<K> || std::is_enum_v<K> || std::is_same_v<K, __int128>) {
    return static_cast<Bits>(bits ^ kSign);
  } else {
    const auto value = static_cast<float>(key);
    if (value != value) return static_cast<Bits>(bits | kSign);
    if (static_cast<Bits>(bits << 1) == 0) return kSign;
    return static_cast<Bits>(bits & kSign ? ~bits : bits | kSign);
  }
}

struct BitRange {
  int begin, end;
  template <typename K>
  auto operator()(const K& key) const {
    auto bits = ordered_bits(key);
    using Bits = decltype(bits);
    constexpr int kBits = 8 * sizeof(Bits);
    const int first = begin < 0 ? 0 : begin, count = (end > kBits ? kBits : end) - first;
    if (count <= 0 || first >= kBits) return Bits(0);
    bits = static_cast<Bits>(bits >> first);
    return count >= kBits ? bits : static_cast<Bits>(bits & ((Bits(1) << count) - 1));
  }
};
// Whether a key goes in front of another one.
struct RadixBefore {
  BitRange range;
  bool is_descending;
  template <typename K>
  bool operator()(const K& a, const K& b) const {
    return is_descending ? range(b) < range(a) : range(a) < range(b);
  }
};

}  // namespace loom_detail
}  // namespace cub
