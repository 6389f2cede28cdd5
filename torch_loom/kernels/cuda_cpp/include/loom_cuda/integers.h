// CUDA's functions of whole numbers and of bits.
#pragma once

#include <stdint.h>
#include <string.h>

#include "loom_cuda/packed_integers.h"
#include "loom_cuda/types.h"

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
static inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555U) | (x & 0x55555555U) << 1;
  x = (x >> 2 & 0x33333333U) | (x & 0x33333333U) << 2;
  x = (x >> 4 & 0x0F0F0F0FU) | (x & 0x0F0F0F0FU) << 4;
  return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
static inline int __fns(unsigned mask, unsigned base, int offset) {
  // The offset-th bit that is set, from `base` on: up where it is positive, down where it is negative.
  const int step = offset < 0 ? -1 : 1;
  int left = offset < 0 ? -offset : offset;
  if (left == 0) return mask >> base & 1 ? static_cast<int>(base) : -1;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) && --left == 0) return at;
  }
  return -1;
}
static inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
static inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFFU) * (b & 0xFFFFFFU); }
static inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
static inline unsigned __uhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1);
}
static inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
static inline unsigned __urhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) + b + 1) >> 1);
}
static inline unsigned __sad(int a, int b, unsigned c) {
  return c + static_cast<unsigned>(a < b ? static_cast<long long>(b) - a : static_cast<long long>(a) - b);
}
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned one = selector >> 4 * i;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (one & 7)) & 0xFF;
    if (one & 8) byte = byte & 0x80 ? 0xFF : 0;
    result |= byte << 8 * i;
  }
  return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

namespace loom_cuda {
// Sums of products of the parts of two words.
template <typename A, typename B, typename C>
static inline C dot4(unsigned a, unsigned b, C c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<C>(static_cast<A>(a >> 8 * i)) * static_cast<C>(static_cast<B>(b >> 8 * i));
  return c;
}
// Of the two halves of `a`, with two bytes of `b` from `first` on.
template <typename A, typename B, typename C>
static inline C dot2(unsigned a, unsigned b, C c, int first) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<C>(static_cast<A>(a >> 16 * i)) * static_cast<C>(static_cast<B>(b >> 8 * (first + i)));
  return c;
}
template <typename T>
static inline unsigned word_of(T vector) {
  static_assert(sizeof(T) == 4);
  unsigned word;
  memcpy(&word, &vector, 4);
  return word;
}
}  // namespace loom_cuda
static inline int __dp4a(int a, int b, int c) { return loom_cuda::dot4<int8_t, int8_t>(a, b, c); }
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return loom_cuda::dot4<uint8_t, uint8_t>(a, b, c);
}
static inline int __dp4a(char4 a, char4 b, int c) {
  return loom_cuda::dot4<int8_t, int8_t>(loom_cuda::word_of(a), loom_cuda::word_of(b), c);
}
static inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return loom_cuda::dot4<uint8_t, uint8_t>(loom_cuda::word_of(a), loom_cuda::word_of(b), c);
}
#define LOOM_CUDA_DOT2(name, first)                                                                        \
  static inline int name(int a, int b, int c) { return loom_cuda::dot2<int16_t, int8_t>(a, b, c, first); } \
  static inline unsigned name(unsigned a, unsigned b, unsigned c) {                                        \
    return loom_cuda::dot2<uint16_t, uint8_t>(a, b, c, first);                                             \
  }                                                                                                        \
  static inline int name(short2 a, char4 b, int c) {                                                       \
    return loom_cuda::dot2<int16_t, int8_t>(loom_cuda::word_of(a), loom_cuda::word_of(b), c, first);       \
  }                                                                                                        \
  static inline unsigned name(ushort2 a, uchar4 b, unsigned c) {                                           \
    return loom_cuda::dot2<uint16_t, uint8_t>(loom_cuda::word_of(a), loom_cuda::word_of(b), c, first);     \
  }
LOOM_CUDA_DOT2(__dp2a_lo, 0)
LOOM_CUDA_DOT2(__dp2a_hi, 2)
#undef LOOM_CUDA_DOT2
