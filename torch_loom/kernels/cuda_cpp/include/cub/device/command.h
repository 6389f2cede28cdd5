// cub's functions over whole arrays are called twice: first for the size of temporary memory. Then each is
// one command of the stream, which a thread of the host computes.
#pragma once

#include <concepts>
#include <type_traits>
#include <vector>

#include "cub/common.h"
#include "cub/util_device.cuh"
#include "cuda_runtime.h"
#include "thrust/iterator/discard_iterator.h"

namespace cub {

// A first value that earlier work of the stream computes.
template <typename T, typename I = T*>
struct FutureValue {
  using value_type = T;
  I at;
  FutureValue() = default;
  explicit FutureValue(I at) : at(at) {}
  operator T() const { return *at; }
};

namespace loom_detail {

template <typename I>
using Value = ::thrust::loom_detail::Value<I>;
template <typename I, typename Other>
using ValueOr = ::thrust::loom_detail::ValueOr<I, Other>;
template <typename I>
concept Iterator = !std::is_arithmetic_v<I>;

template <typename T>
struct Now {
  using type = T;
};
template <typename T, typename I>
struct Now<FutureValue<T, I>> {
  using type = T;
};
// What sums are kept in: as an operator returns them.
template <typename Op, typename First, typename In>
using Accumulated = std::decay_t<std::invoke_result_t<Op&, typename Now<First>::type, Value<In>>>;

template <typename F, typename... A>
static inline cudaError_t command(const char* name, void* temporary, size_t& bytes, cudaStream_t stream,
                                  F body, A... arguments) {
  if (temporary == nullptr) {
    bytes = 1;  // a size of 0 would be asked for again
    return cudaSuccess;
  }
  return static_cast<cudaError_t>(loom_cuda::launch(
      name, "",
      [body](auto&... given) {
        const loom_cuda::Unwatched own_memory;
        body(given...);
      },
      loom_cuda::Configuration(1, 1, 0, stream), ::thrust::loom_detail::bare(arguments)...));
}

}  // namespace loom_detail
}  // namespace cub
