#pragma once

#include "cub/device/command.h"

namespace cub {

// Prefix sums, of a whole and of runs of equal keys. They may write where they read.
struct DeviceScan {
  template <typename In, loom_detail::Iterator Out, typename Op, std::integral N>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, N n,
                                   cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceScan", temporary, bytes, stream,
        [](auto in, auto out, Op op, N n) {
          using Value = loom_detail::Value<In>;
          if (n == 0) return;
          loom_detail::Accumulated<Op, Value, In> value = static_cast<Value>(in[0]);
          out[0] = value;
          for (N i = 1; i < n; ++i) out[i] = value = op(value, static_cast<Value>(in[i]));
        },
        in, out, op, n);
  }
  template <typename In, typename Out, typename Op, typename T, std::integral N>
  static cudaError_t InclusiveScanInit(void* temporary, size_t& bytes, In in, Out out, Op op, T initial, N n,
                                       cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceScan", temporary, bytes, stream,
        [](auto in, auto out, Op op, T initial, N n) {
          loom_detail::Accumulated<Op, T, In> value = static_cast<typename loom_detail::Now<T>::type>(initial);
          for (N i = 0; i < n; ++i) out[i] = value = op(value, static_cast<loom_detail::Value<In>>(in[i]));
        },
        in, out, op, initial, n);
  }
  template <typename In, loom_detail::Iterator Out, typename Op, typename T, std::integral N>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, T initial, N n,
                                   cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceScan", temporary, bytes, stream,
        [](auto in, auto out, Op op, T initial, N n) {
          loom_detail::Accumulated<Op, T, In> value = static_cast<typename loom_detail::Now<T>::type>(initial);
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            out[i] = value;
            value = op(value, own);
          }
        },
        in, out, op, initial, n);
  }
  template <typename In, loom_detail::Iterator Out, std::integral N>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr, bool = false) {
    return InclusiveScan(temporary, bytes, in, out, cub::Sum(), n, stream);
  }
  template <typename In, loom_detail::Iterator Out, std::integral N>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr, bool = false) {
    return ExclusiveScan(temporary, bytes, in, out, cub::Sum(), loom_detail::Value<In>(), n, stream);
  }
  // In place.
  template <typename In, typename Op, std::integral N>
    requires std::invocable<Op&, loom_detail::Value<In>, loom_detail::Value<In>>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, In data, Op op, N n,
                                   cudaStream_t stream = nullptr) {
    return InclusiveScan(temporary, bytes, data, data, op, n, stream);
  }
  template <typename In, typename Op, typename T, std::integral N>
    requires std::invocable<Op&, loom_detail::Value<In>, loom_detail::Value<In>>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, In data, Op op, T initial, N n,
                                   cudaStream_t stream = nullptr) {
    return ExclusiveScan(temporary, bytes, data, data, op, initial, n, stream);
  }
  template <typename In, std::integral N>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, In data, N n,
                                  cudaStream_t stream = nullptr) {
    return InclusiveSum(temporary, bytes, data, data, n, stream);
  }
  template <typename In, std::integral N>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, In data, N n,
                                  cudaStream_t stream = nullptr) {
    return ExclusiveSum(temporary, bytes, data, data, n, stream);
  }

  template <typename K, typename In, typename Out, typename Op, std::integral N, typename Equal = Equality>
  static cudaError_t InclusiveScanByKey(void* temporary, size_t& bytes, K keys, In in, Out out, Op op, N n,
                                        Equal equal = {}, cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceScan", temporary, bytes, stream,
        [](auto keys, auto in, auto out, Op op, N n, Equal equal) {
          using Value = loom_detail::Value<In>;
          if (n == 0) return;
          loom_detail::Value<K> key = keys[0];
          loom_detail::Accumulated<Op, Value, In> value = static_cast<Value>(in[0]);
          out[0] = value;
          for (N i = 1; i < n; ++i) {
            const loom_detail::Value<K> next = keys[i];
            const Value own = in[i];
            if (equal(key, next)) {
              value = op(value, own);
            } else {
              value = own;
            }
            out[i] = value;
            key = next;
          }
        },
        keys, in, out, op, n, equal);
  }
  template <typename K, typename In, typename Out, typename Op, typename T, std::integral N,
            typename Equal = Equality>
  static cudaError_t ExclusiveScanByKey(void* temporary, size_t& bytes, K keys, In in, Out out, Op op,
                                        T initial, N n, Equal equal = {}, cudaStream_t stream = nullptr,
                                        bool = false) {
    return loom_detail::command(
        "cub::DeviceScan", temporary, bytes, stream,
        [](auto keys, auto in, auto out, Op op, T initial, N n, Equal equal) {
          if (n == 0) return;
          loom_detail::Value<K> key = keys[0];
          loom_detail::Accumulated<Op, T, In> value = initial;
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<K> next = keys[i];
            const loom_detail::Value<In> own = in[i];
            if (i > 0 && !equal(key, next)) value = initial;
            out[i] = value;
            value = op(value, own);
            key = next;
          }
        },
        keys, in, out, op, initial, n, equal);
  }
  template <typename K, typename In, typename Out, std::integral N, typename Equal = Equality>
  static cudaError_t InclusiveSumByKey(void* temporary, size_t& bytes, K keys, In in, Out out, N n,
                                       Equal equal = {}, cudaStream_t stream = nullptr, bool = false) {
    return InclusiveScanByKey(temporary, bytes, keys, in, out, cub::Sum(), n, equal, stream);
  }
  template <typename K, typename In, typename Out, std::integral N, typename Equal = Equality>
  static cudaError_t ExclusiveSumByKey(void* temporary, size_t& bytes, K keys, In in, Out out, N n,
                                       Equal equal = {}, cudaStream_t stream = nullptr, bool = false) {
    return ExclusiveScanByKey(temporary, bytes, keys, in, out, cub::Sum(), loom_detail::Value<In>(), n, equal,
                              stream);
  }
};

}  // namespace cub
