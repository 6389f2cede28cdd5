// Products of blocks: out = sum + left * right, each in rows.
#pragma once

#include "numbers.h"

namespace loom {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
constexpr int kRows = 12;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kRows = 4;
#endif

template <typename T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};

// `rows` rows of the result, `vectors` vectors wide, in registers. Rows of `right` are `stride` apart.
template <typename T, int rows, int vectors>
inline void product_tile(T* out, const T* sum, const T* left, const T* right, int depth, int width,
                         int stride) {
  using V = typename Vector<T>::type;
  constexpr int lanes = kVectorBytes / sizeof(T);
  V total[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) total[r][v] = *reinterpret_cast<const V*>(sum + r * width + v * lanes);
  for (int k = 0; k < depth; ++k) {
    V b[vectors];
    for (int v = 0; v < vectors; ++v) b[v] = *reinterpret_cast<const V*>(right + k * stride + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const T a = left[r * depth + k];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) total[r][v] += a * b[v];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) *reinterpret_cast<V*>(out + r * width + v * lanes) = total[r][v];
}

template <typename T, int height, int width, int depth>
__attribute__((noinline)) void product(T* out, const T* sum, const T* left, const T* right) {
  constexpr int lanes = kVectorBytes / sizeof(T);
  if constexpr (width % lanes != 0) {
    for (int m = 0; m < height; ++m)
      for (int n = 0; n < width; ++n) {
        T total = sum[m * width + n];
        for (int k = 0; k < depth; ++k) total += left[m * depth + k] * right[k * width + n];
        out[m * width + n] = total;
      }
  } else {
    constexpr int vectors = width % (2 * lanes) == 0 ? 2 : 1;
    constexpr int rest = height % kRows, columns = vectors * lanes;
    // Rows a power of two apart share a few places of the cache: those that are read often are copied.
    constexpr bool is_packed = height > 2 * kRows && width > columns && depth * columns * sizeof(T) <= 32768;
    alignas(64) T panel[is_packed ? depth * columns : 1];
    for (int n = 0; n < width; n += columns) {
      const T* b = right + n;
      int stride = width;
      if constexpr (is_packed) {
        for (int k = 0; k < depth; ++k) memcpy(panel + k * columns, b + k * width, sizeof(T) * columns);
        b = panel;
        stride = columns;
      }
      int m = 0;
      for (; m + kRows <= height; m += kRows)
        product_tile<T, kRows, vectors>(out + m * width + n, sum + m * width + n, left + m * depth, b, depth,
                                        width, stride);
      if constexpr (rest != 0)
        product_tile<T, rest, vectors>(out + m * width + n, sum + m * width + n, left + m * depth, b, depth,
                                       width, stride);
    }
  }
}

// Two numbers of four bits a byte, the lower one first: a sign, two bits of exponent, one of mantissa.
struct FP4 {};

template <typename T>
inline float microscaled(const uint8_t* values, int64_t at) {
  if constexpr (std::is_same_v<T, FP4>) {
    constexpr float magnitudes[8] = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
    const int bits = values[at / 2] >> (at % 2 * 4) & 15;
    return bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
  } else {
    T value;
    memcpy(&value, values + at * sizeof(T), sizeof(T));
    return static_cast<float>(value);
  }
}
// A scale is the exponent of a power of 2, or a float8.
template <typename S>
inline float scale_of(const uint8_t* scales, int64_t at) {
  if (scales == nullptr) return 1.f;
  if constexpr (std::is_same_v<S, int8_t>) {
    return scales[at] == 255 ? NAN : ldexpf(1.f, scales[at] - 127);
  } else {
    return microscaled<S>(scales, at);
  }
}

// One scale for each group of neighbours along the depth.
template <typename T, typename L, typename R, typename LS, typename RS, int height, int width, int depth,
          int left_group, int right_group>
__attribute__((noinline)) void scaled_product(T* out, const T* sum, const uint8_t* left, const uint8_t* right,
                                              const uint8_t* left_scales, const uint8_t* right_scales) {
  for (int m = 0; m < height; ++m)
    for (int n = 0; n < width; ++n) {
      float total = static_cast<float>(sum[m * width + n]);
      for (int k = 0; k < depth; ++k) {
        float a, b;
        a = microscaled<L>(left, int64_t{m} * depth + k);
        // Packed numbers are neighbours along the depth.
        if constexpr (std::is_same_v<R, FP4>) {
          constexpr float magnitudes[8] = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
          const int bits = right[int64_t{k / 2} * width + n] >> (k % 2 * 4) & 15;
          b = bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
        } else {
          b = microscaled<R>(right, int64_t{k} * width + n);
        }
        a *= scale_of<LS>(left_scales, int64_t{m} * (depth / left_group) + k / left_group);
        b *= scale_of<RS>(right_scales, int64_t{n} * (depth / right_group) + k / right_group);
        total += a * b;
      }
      out[m * width + n] = static_cast<T>(total);
    }
}

}  // namespace loom
