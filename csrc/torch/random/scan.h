// Running sums and products in the order in which CUDA's kernels combine, so that they round as there.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda/ScanUtils.cuh); compared with an H200 and an
// H100, bit for bit (tests/cuda/test_card_values.py).
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace loom::glue {

// A running sum along the innermost dimension: each step takes twice as many elements as there are threads,
// and sums them by Sklansky's network. Rounds after each addition.
template <typename T, typename Combine>
void scan_row(const T* from, T* to, int64_t count, int64_t log_threads, T identity, const Combine& combine) {
  const int64_t threads = int64_t{1} << log_threads, step = 2 * threads;
  std::vector<T> row(static_cast<size_t>(step));
  T total = identity;
  for (int64_t start = 0; start < count; start += step) {
    const int64_t size = std::min(step, count - start);
    std::fill(std::copy_n(from + start, size, row.begin()), row.end(), identity);
    row[0] = combine(row[0], total);
    for (int64_t level = 0; level <= log_threads; ++level) {
      const int64_t half = int64_t{1} << level;
      for (int64_t first = half; first < std::min(step, size + half); first += 2 * half) {
        for (int64_t i = first; i < first + half; ++i)
          row[static_cast<size_t>(i)] =
              combine(row[static_cast<size_t>(i)], row[static_cast<size_t>(first - 1)]);
      }
    }
    std::copy_n(row.begin(), size, to + start);
    total = row.back();
  }
}

inline int64_t log2_up(int64_t number) { return std::bit_width(static_cast<uint64_t>(number - 1)); }

template <typename T, typename Combine>
at::Tensor scanned(const at::Tensor& self, int64_t dim, T identity, const Combine& combine) {
  at::Tensor result = at::empty(self.sizes(), self.options());
  const int64_t count = self.size(dim);
  const T* const from = self.const_data_ptr<T>();
  T* const to = result.mutable_data_ptr<T>();
  if (dim == self.dim() - 1) {
    const int64_t rows = self.numel() / count;
    const int64_t log_threads = std::clamp<int64_t>((9 + log2_up(count) - log2_up(rows)) / 2, 4, 9);
    at::parallel_for(0, rows, std::max<int64_t>(1, (1 << 14) / count), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        scan_row(from + row * count, to + row * count, count, log_threads, identity, combine);
    });
    return result;
  }
  // One thread goes along a column. The stride would not tell how many there are: that of one element is any.
  const int64_t columns = c10::multiply_integers(self.sizes().slice(static_cast<size_t>(dim) + 1));
  const int64_t size = count * columns;
  at::parallel_for(0, self.numel() / size, 1 + (1 << 14) / size, [&](int64_t begin, int64_t end) {
    for (int64_t start = begin * size; start < end * size; start += size) {
      for (int64_t i = start; i < start + columns; ++i) to[i] = combine(identity, from[i]);
      for (int64_t i = start + columns; i < start + size; ++i) to[i] = combine(to[i - columns], from[i]);
    }
  });
  return result;
}

// Of a contiguous tensor of floating point, in its own dtype; it has more than one row, as one row alone is
// scanned by another kernel, whose order depends on which blocks are first.
template <typename Combine>
at::Tensor scanned_rows(const at::Tensor& self, int64_t dim, double identity, const Combine& combine) {
  at::Tensor result;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "scan_cuda", [&] {
    result = scanned<scalar_t>(self, dim, static_cast<scalar_t>(identity), combine);
  });
  return result;
}

}  // namespace loom::glue
