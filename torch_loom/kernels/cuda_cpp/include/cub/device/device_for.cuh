// Loops over whole arrays: a call for each item, differences of neighbours, copies of many ranges.
#pragma once

#include <string.h>

#include <tuple>

#include "cub/device/command.h"

namespace cub {

// Each form is there with temporary memory and without.
struct DeviceFor {
  template <std::integral N, typename F>
  static cudaError_t Bulk(N n, F f, cudaStream_t stream = nullptr) {
    return run(
        stream,
        [](N n, F f) {
          for (N i = 0; i < n; ++i) f(i);
        },
        n, f);
  }
  template <loom_detail::Iterator I, std::integral N, typename F>
  static cudaError_t ForEachN(I first, N n, F f, cudaStream_t stream = nullptr) {
    return run(
        stream,
        [](auto first, N n, F f) {
          for (N i = 0; i < n; ++i) {
            auto&& place = first[i];
            f(place);
          }
        },
        first, n, f);
  }
  template <loom_detail::Iterator I, typename F>
    requires(!std::same_as<I, void*>)
  static cudaError_t ForEach(I first, I last, F f, cudaStream_t stream = nullptr) {
    return ForEachN(first, last - first, f, stream);
  }
  template <loom_detail::Iterator I, std::integral N, typename F>
  static cudaError_t ForEachCopyN(I first, N n, F f, cudaStream_t stream = nullptr) {
    return ForEachN(first, n, [f](loom_detail::Value<I> value) { return F(f)(value); }, stream);
  }
  template <loom_detail::Iterator I, typename F>
    requires(!std::same_as<I, void*>)
  static cudaError_t ForEachCopy(I first, I last, F f, cudaStream_t stream = nullptr) {
    return ForEachCopyN(first, last - first, f, stream);
  }
#define LOOM_CUB_WITH_MEMORY(name)                                          \
  template <typename... A>                                                  \
  static cudaError_t name(void* temporary, size_t& bytes, A... arguments) { \
    if (temporary != nullptr) return name(arguments...);                    \
    bytes = 1;                                                              \
    return cudaSuccess;                                                     \
  }
  LOOM_CUB_WITH_MEMORY(Bulk)
  LOOM_CUB_WITH_MEMORY(ForEachN)
  LOOM_CUB_WITH_MEMORY(ForEach)
  LOOM_CUB_WITH_MEMORY(ForEachCopyN)
  LOOM_CUB_WITH_MEMORY(ForEachCopy)
#undef LOOM_CUB_WITH_MEMORY

 private:
  template <typename F, typename... A>
  static cudaError_t run(cudaStream_t stream, F body, A... arguments) {
    size_t bytes = 0;
    return loom_detail::command("cub::DeviceFor", &bytes, bytes, stream, body, arguments...);
  }
};

struct DeviceTransform {
  template <typename... In, typename Out, std::integral N, typename F>
  static cudaError_t Transform(std::tuple<In...> in, Out out, N n, F f, cudaStream_t stream = nullptr) {
    size_t bytes = 0;
    return std::apply(
        [&](In... in) {
          return loom_detail::command(
              "cub::DeviceTransform", &bytes, bytes, stream,
              [](auto out, N n, F f, auto... in) {
                for (N i = 0; i < n; ++i) out[i] = f(in[i]...);
              },
              out, n, f, in...);
        },
        in);
  }
  template <typename In, typename Out, std::integral N, typename F>
  static cudaError_t Transform(In in, Out out, N n, F f, cudaStream_t stream = nullptr) {
    return Transform(std::tuple<In>(in), out, n, f, stream);
  }
};

struct DeviceAdjacentDifference {
  template <typename In, loom_detail::Iterator Out, std::integral N, typename Op = Difference>
    requires(!std::convertible_to<Op, cudaStream_t>)
  static cudaError_t SubtractLeftCopy(void* temporary, size_t& bytes, In in, Out out, N n, Op op = {},
                                      cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceAdjacentDifference", temporary, bytes, stream,
        [](auto in, auto out, N n, Op op) {
          loom_detail::Value<In> before{};
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            if (i == 0) {
              out[i] = own;
            } else {
              out[i] = op(own, before);
            }
            before = own;
          }
        },
        in, out, n, op);
  }
  template <typename In, loom_detail::Iterator Out, std::integral N, typename Op = Difference>
    requires(!std::convertible_to<Op, cudaStream_t>)
  static cudaError_t SubtractRightCopy(void* temporary, size_t& bytes, In in, Out out, N n, Op op = {},
                                       cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceAdjacentDifference", temporary, bytes, stream,
        [](auto in, auto out, N n, Op op) {
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            if (i == n - 1) {
              out[i] = own;
            } else {
              out[i] = op(own, static_cast<loom_detail::Value<In>>(in[i + 1]));
            }
          }
        },
        in, out, n, op);
  }
  template <typename In, std::integral N, typename Op = Difference>
    requires(!std::convertible_to<Op, cudaStream_t>)
  static cudaError_t SubtractLeft(void* temporary, size_t& bytes, In data, N n, Op op = {},
                                  cudaStream_t stream = nullptr, bool = false) {
    return SubtractLeftCopy(temporary, bytes, data, data, n, op, stream);
  }
  template <typename In, std::integral N, typename Op = Difference>
    requires(!std::convertible_to<Op, cudaStream_t>)
  static cudaError_t SubtractRight(void* temporary, size_t& bytes, In data, N n, Op op = {},
                                   cudaStream_t stream = nullptr, bool = false) {
    return SubtractRightCopy(temporary, bytes, data, data, n, op, stream);
  }
};

// Many ranges, whose sizes are in memory of the device.
struct DeviceMemcpy {
  template <typename In, typename Out, typename Size>
  static cudaError_t Batched(void* temporary, size_t& bytes, In from, Out to, Size sizes, size_t n,
                             cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceMemcpy", temporary, bytes, stream,
        [](auto from, auto to, auto sizes, size_t n) {
          for (size_t i = 0; i < n; ++i) memmove(to[i], from[i], static_cast<size_t>(sizes[i]));
        },
        from, to, sizes, n);
  }
};
struct DeviceCopy {
  template <typename In, typename Out, typename Size>
  static cudaError_t Batched(void* temporary, size_t& bytes, In from, Out to, Size sizes, size_t n,
                             cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceCopy", temporary, bytes, stream,
        [](auto from, auto to, auto sizes, size_t n) {
          for (size_t i = 0; i < n; ++i) {
            for (size_t k = 0; k < static_cast<size_t>(sizes[i]); ++k) to[i][k] = from[i][k];
          }
        },
        from, to, sizes, n);
  }
};

}  // namespace cub
