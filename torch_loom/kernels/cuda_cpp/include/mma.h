// nvcuda::wmma: products of small matrices that a warp holds together. The lanes hold the elements in turns,
// as CUDA leaves open: element i of a lane is number 32 i + lane of the matrix, by rows. Products are summed
// in float32 (whole numbers in int32, double in double), from the first to the last, and rounded once.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "loom_cuda/device.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

namespace loom_detail {

template <typename T>
struct Stored {
  using type = T;
};
template <>
struct Stored<precision::tf32> {
  using type = float;
};

template <typename Use, int m, int n, int k>
struct Shape {
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? k : n;
};

template <typename T>
inline constexpr bool is_whole = std::is_integral_v<T>;
template <typename T, int m, int n, int k>
inline constexpr bool is_shape =
    std::is_same_v<T, double>            ? m == 8 && n == 8 && k == 4
    : std::is_same_v<T, precision::tf32> ? m == 16 && n == 16 && k == 8
                                         : k == 16 && m * n == 256 && m >= 8 && n >= 8;

// What is multiplied: a tensor core reads ten bits of a tf32's fraction.
template <typename T>
inline float factor(float value) {
  return std::is_same_v<T, precision::tf32> ? loom_cuda::ptx::tf32::get(loom_cuda::ptx::bits(value), 0)
                                            : value;
}
template <typename T>
inline float factor(__half value) {
  return value.wide();
}
template <typename T>
inline float factor(__nv_bfloat16 value) {
  return value.wide();
}
template <typename T>
inline double factor(double value) {
  return value;
}
template <typename T>
inline int factor(signed char value) {
  return value;
}
template <typename T>
inline int factor(unsigned char value) {
  return value;
}
inline float wide(__half value) { return value.wide(); }
template <typename T>
inline T wide(T value) {
  return value;
}
template <typename T, typename Sum>
inline T narrow(Sum sum) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half::narrow(sum);
  } else {
    return sum;
  }
}

}  // namespace loom_detail

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
class fragment {
 public:
  using element_type = T;
  using storage_element_type = typename loom_detail::Stored<T>::type;
  static constexpr int rows = loom_detail::Shape<Use, m, n, k>::rows;
  static constexpr int columns = loom_detail::Shape<Use, m, n, k>::columns;
  static constexpr int num_elements = rows * columns / 32;
  static constexpr int num_storage_elements = num_elements;
  storage_element_type x[num_elements];
};

template <typename Use, int m, int n, int k, typename T, typename Layout, typename V>
inline void fill_fragment(fragment<Use, m, n, k, T, Layout>& own, const V& value) {
  for (auto& element : own.x) element = value;
}

namespace loom_detail {

// Where an element lies in memory.
template <typename Fragment>
inline size_t place(int i, unsigned stride, bool is_by_rows) {
  const unsigned number = static_cast<unsigned>(i) * 32 + loom_cuda::lane();
  const size_t row = number / Fragment::columns, column = number % Fragment::columns;
  return is_by_rows ? row * stride + column : column * stride + row;
}
template <typename Fragment, typename T>
inline void load(Fragment& own, const T* memory, unsigned stride, bool is_by_rows) {
  __syncwarp();
  for (int i = 0; i < Fragment::num_elements; ++i) own.x[i] = memory[place<Fragment>(i, stride, is_by_rows)];
}

}  // namespace loom_detail

template <typename Use, int m, int n, int k, typename T, typename Layout>
inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& own,
                             const typename loom_detail::Stored<T>::type* memory, unsigned stride) {
  loom_detail::load(own, memory, stride, std::is_same_v<Layout, row_major>);
}
template <int m, int n, int k, typename T>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& own, const T* memory, unsigned stride,
                             layout_t layout) {
  loom_detail::load(own, memory, stride, layout == mem_row_major);
}
template <int m, int n, int k, typename T>
inline void store_matrix_sync(T* memory, const fragment<accumulator, m, n, k, T>& own, unsigned stride,
                              layout_t layout) {
  using Own = fragment<accumulator, m, n, k, T>;
  __syncwarp();
  for (int i = 0; i < Own::num_elements; ++i)
    memory[loom_detail::place<Own>(i, stride, layout == mem_row_major)] = own.x[i];
  __syncwarp();
}

namespace loom_detail {

template <int m, int n, int k, typename T, typename D, typename C>
struct Product {
  using Factors = typename Stored<T>::type;
  using Sum = decltype(factor<T>(Factors()));
  const Factors *a, *b;
  const C* c;
  D* d;

  static void multiply(void* const* given, unsigned) {
    const loom_cuda::Unchecked own_memory;
    const auto lane = [&](int number) -> const Product& {
      return *static_cast<const Product*>(given[number % 32]);
    };
    Sum a[m][k], b[k][n];
    for (int i = 0; i < m * k; ++i) a[i / k][i % k] = factor<T>(lane(i).a[i / 32]);
    for (int i = 0; i < k * n; ++i) b[i / n][i % n] = factor<T>(lane(i).b[i / 32]);
    for (int i = 0; i < m; ++i) {
      Sum sums[n];
      for (int j = 0; j < n; ++j) sums[j] = wide(lane(i * n + j).c[(i * n + j) / 32]);
      for (int step = 0; step < k; ++step) {
        for (int j = 0; j < n; ++j) sums[j] += a[i][step] * b[step][j];
      }
      for (int j = 0; j < n; ++j) lane(i * n + j).d[(i * n + j) / 32] = narrow<D>(sums[j]);
    }
  }
};

}  // namespace loom_detail

// D = A B + C; D may be C.
template <int m, int n, int k, typename T, typename LayoutA, typename LayoutB, typename D, typename C>
inline void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                     const fragment<matrix_b, m, n, k, T, LayoutB>& b,
                     const fragment<accumulator, m, n, k, C>& c, bool = false) {
  static_assert(loom_detail::is_shape<T, m, n, k>, "wmma has no product of this shape and type");
  loom_detail::Product<m, n, k, T, D, C> own{a.x, b.x, c.x, d.x};
  loom_cuda::meet(0xffffffffU, own, &loom_detail::Product<m, n, k, T, D, C>::multiply);
}

static inline float __float_to_tf32(float value) {
  loom_cuda::ptx::set(value, loom_cuda::ptx::rounded_tf32(value));
  return value;
}

}  // namespace nvcuda::wmma
