#include "torch/cuda/values/list_norms.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "torch/cuda/values/fused_loops.h"
#include "torch/cuda/values/reductions.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

constexpr int64_t kChunk = 65536, kThreads = 512, kLanes = 32, kSums = 4;  // sums of a thread

// What a block of threads adds up: halves of each warp, then the warps.
template <typename T>
T sum_of_block(std::array<T, kThreads>& values) {
  const auto halve = [](T* own, int64_t count) {
    for (int64_t half = count / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) own[i] += own[i + half];
    }
    return own[0];
  };
  std::array<T, kLanes> warps{};
  for (int64_t warp = 0; warp < kThreads / kLanes; ++warp)
    warps[static_cast<size_t>(warp)] = halve(values.data() + warp * kLanes, kLanes);
  return halve(warps.data(), kLanes);
}

template <typename T>
T sum_of_chunk(const T* values, int64_t count, bool is_square, bool is_aligned) {
  constexpr int64_t kPeriod = kThreads * kSums;
  std::array<T, kPeriod> sums{};
  for (int64_t start = 0; start < count; start += kPeriod) {
    const int64_t size = std::min(kPeriod, count - start);
    if (is_square) {
      add_squares(sums.data(), values + start, size);
    } else {
      for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] += std::abs(values[start + i]);
    }
  }
  // Loads are vectors of a thread where all are whole, else lie as many apart as there are threads.
  const bool is_whole = count % kSums == 0 && is_aligned;
  const size_t step = is_whole ? kSums : 1, apart = is_whole ? 1 : kThreads;
  std::array<T, kThreads> threads{};
  for (size_t thread = 0; thread < threads.size(); ++thread) {
    for (size_t i = 0; i < kSums; ++i) threads[thread] += sums[thread * step + i * apart];
  }
  return sum_of_block(threads);
}

template <typename T>
T norm_of(const Tensor& tensor, bool is_square, bool is_aligned, int64_t most_chunks) {
  const int64_t count = tensor.numel();
  const T* const values = tensor.const_data_ptr<T>();
  std::vector<T> chunks(static_cast<size_t>(most_chunks), T(0));
  at::parallel_for(0, (count + kChunk - 1) / kChunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk)
      chunks[static_cast<size_t>(chunk)] = sum_of_chunk(
          values + chunk * kChunk, std::min(kChunk, count - chunk * kChunk), is_square, is_aligned);
  });
  std::array<T, kThreads> threads{};
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) threads[chunk % kThreads] += chunks[chunk];
  const T sum = sum_of_block(threads);
  return is_square ? std::sqrt(sum) : sum;
}

}  // namespace

Tensors norms_of_lists(Arguments arguments) {
  if (adding_grid() == nullptr || !arguments[0].isTensorList() || !arguments[1].isScalar()) return {};
  const Tensors lists = arguments[0].toTensorVector();
  const c10::Scalar order = arguments[1].toScalar();
  if (lists.empty() || order.isComplex() || (order.toDouble() != 1 && order.toDouble() != 2)) return {};
  int64_t most_chunks = 1;
  for (const Tensor& tensor : lists) {
    if (tensor.is_meta() || tensor.layout() != c10::kStrided || !is_summed(tensor.scalar_type()) ||
        tensor.scalar_type() != lists[0].scalar_type() || !tensor.is_non_overlapping_and_dense())
      return {};
    most_chunks = std::max(most_chunks, (tensor.numel() + kChunk - 1) / kChunk);
  }
  const c10::ScalarType dtype = arguments[2].isInt() ? arguments[2].toScalarType() : lists[0].scalar_type();
  // The engine refuses a narrower dtype.
  if (!is_summed(dtype) || c10::promoteTypes(lists[0].scalar_type(), dtype) != dtype) return {};
  Tensors results;
  for (const Tensor& tensor : lists) {
    const Tensor wide = tensor.to(dtype == at::kDouble ? at::kDouble : at::kFloat);
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    const bool is_aligned = address % (kSums * tensor.element_size()) == 0;
    Tensor result = at::empty({}, wide.options());
    const bool is_square = order.toDouble() == 2;
    if (dtype == at::kDouble) {
      *result.mutable_data_ptr<double>() = norm_of<double>(wide, is_square, is_aligned, most_chunks);
    } else {
      *result.mutable_data_ptr<float>() = norm_of<float>(wide, is_square, is_aligned, most_chunks);
    }
    results.push_back(result.to(dtype));
  }
  return results;
}

}  // namespace loom::glue
