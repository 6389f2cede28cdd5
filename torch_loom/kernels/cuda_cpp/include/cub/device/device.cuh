// cub's functions over whole arrays: one command of the stream each, which the host's thread computes. As
// cub's, they are called twice: first for the size of temporary memory.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cub/common.h"
#include "cuda_runtime.h"

namespace cub {
namespace loom_detail {

// A byte: a size of 0 would be asked for again.
static inline bool asks_size(void* temporary, size_t& bytes) {
  if (temporary == nullptr) bytes = 1;
  return temporary == nullptr;
}
template <typename F, typename... A>
static inline cudaError_t on_stream(const char* name, cudaStream_t stream, F body, A... arguments) {
  return static_cast<cudaError_t>(loom_cuda::launch(
      name, "", loom_cuda::Configuration(1, 1, 0, stream),
      [body](auto... given) {
        const loom_cuda::Unchecked own_memory;
        body(given...);
      },
      arguments...));
}
template <typename Iterator>
using Value = std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<Iterator>())>>;

// Order as by the bits that a radix sort looks at: −0 before 0, NaN last.
template <typename K>
static inline bool before(const K& a, const K& b) {
  if constexpr (std::is_floating_point_v<K>) {
    if (a != a || b != b) return a == a && b != b;
    if (a == b) return std::signbit(a) && !std::signbit(b);
  }
  return a < b;
}
template <typename K>
static inline std::vector<int64_t> sorted(const K* keys, int64_t n, bool is_descending) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [=](int64_t a, int64_t b) {
    return is_descending ? before(keys[b], keys[a]) : before(keys[a], keys[b]);
  });
  return order;
}

}  // namespace loom_detail

struct DeviceReduce {
  template <typename In, typename Out, typename N, typename Op, typename T>
  static cudaError_t Reduce(void* temporary, size_t& bytes, In in, Out out, N n, Op op, T initial,
                            cudaStream_t stream = nullptr) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceReduce", stream,
        [](In in, Out out, N n, Op op, T value) {
          for (N i = 0; i < n; ++i) value = op(value, in[i]);
          *out = value;
        },
        in, out, n, op, initial);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Sum(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return Reduce(temporary, bytes, in, out, n, cub::Sum(), loom_detail::Value<Out>(), stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Max(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return first_and(temporary, bytes, in, out, n, cub::Max(), stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Min(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return first_and(temporary, bytes, in, out, n, cub::Min(), stream);
  }

 private:
  template <typename In, typename Out, typename N, typename Op>
  static cudaError_t first_and(void* temporary, size_t& bytes, In in, Out out, N n, Op op,
                               cudaStream_t stream) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceReduce", stream,
        [](In in, Out out, N n, Op op) {
          if (n == 0) return;
          auto value = static_cast<loom_detail::Value<Out>>(in[0]);
          for (N i = 1; i < n; ++i) value = op(value, in[i]);
          *out = value;
        },
        in, out, n, op);
  }
};

struct DeviceScan {
  template <typename In, typename Out, typename Op, typename N>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, N n,
                                   cudaStream_t stream = nullptr) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceScan", stream,
        [](In in, Out out, Op op, N n) {
          if (n == 0) return;
          loom_detail::Value<In> value = in[0];
          out[0] = value;
          for (N i = 1; i < n; ++i) out[i] = value = op(value, in[i]);
        },
        in, out, op, n);
  }
  template <typename In, typename Out, typename Op, typename T, typename N>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, T initial, N n,
                                   cudaStream_t stream = nullptr) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceScan", stream,
        [](In in, Out out, Op op, T value, N n) {
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            out[i] = value;
            value = op(value, own);
          }
        },
        in, out, op, initial, n);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr) {
    return InclusiveScan(temporary, bytes, in, out, cub::Sum(), n, stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr) {
    return ExclusiveScan(temporary, bytes, in, out, cub::Sum(), loom_detail::Value<In>(), n, stream);
  }
};

// The range of bits is not looked at: whole keys are compared.
struct DeviceRadixSort {
  template <typename K, typename N>
  static cudaError_t SortKeys(void* temporary, size_t& bytes, const K* in, K* out, N n, int = 0,
                              int = 8 * sizeof(K), cudaStream_t stream = nullptr) {
    return keys(temporary, bytes, in, out, n, false, stream);
  }
  template <typename K, typename N>
  static cudaError_t SortKeysDescending(void* temporary, size_t& bytes, const K* in, K* out, N n, int = 0,
                                        int = 8 * sizeof(K), cudaStream_t stream = nullptr) {
    return keys(temporary, bytes, in, out, n, true, stream);
  }
  template <typename K, typename V, typename N>
  static cudaError_t SortPairs(void* temporary, size_t& bytes, const K* in, K* out, const V* values,
                               V* values_out, N n, int = 0, int = 8 * sizeof(K),
                               cudaStream_t stream = nullptr) {
    return pairs(temporary, bytes, in, out, values, values_out, n, false, stream);
  }
  template <typename K, typename V, typename N>
  static cudaError_t SortPairsDescending(void* temporary, size_t& bytes, const K* in, K* out, const V* values,
                                         V* values_out, N n, int = 0, int = 8 * sizeof(K),
                                         cudaStream_t stream = nullptr) {
    return pairs(temporary, bytes, in, out, values, values_out, n, true, stream);
  }

 private:
  template <typename K, typename N>
  static cudaError_t keys(void* temporary, size_t& bytes, const K* in, K* out, N n, bool is_descending,
                          cudaStream_t stream) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceRadixSort", stream,
        [](const K* in, K* out, N n, bool is_descending) {
          const auto order = loom_detail::sorted(in, n, is_descending);
          for (N i = 0; i < n; ++i) out[i] = in[order[static_cast<size_t>(i)]];
        },
        in, out, n, is_descending);
  }
  template <typename K, typename V, typename N>
  static cudaError_t pairs(void* temporary, size_t& bytes, const K* in, K* out, const V* values,
                           V* values_out, N n, bool is_descending, cudaStream_t stream) {
    if (loom_detail::asks_size(temporary, bytes)) return cudaSuccess;
    return loom_detail::on_stream(
        "cub::DeviceRadixSort", stream,
        [](const K* in, K* out, const V* values, V* values_out, N n, bool is_descending) {
          const auto order = loom_detail::sorted(in, n, is_descending);
          for (N i = 0; i < n; ++i) {
            out[i] = in[order[static_cast<size_t>(i)]];
            values_out[i] = values[order[static_cast<size_t>(i)]];
          }
        },
        in, out, values, values_out, n, is_descending);
  }
};

}  // namespace cub
