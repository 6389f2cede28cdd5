#pragma once

#include <limits>

#include "cub/device/command.h"

namespace cub {
namespace loom_detail {

template <typename Op, typename In, typename T, typename Transform>
static inline auto reduced(In in, long long first, long long last, Op& op, const T& initial,
                           Transform& transform) {
  using Result = std::decay_t<std::invoke_result_t<Op&, T, decltype(transform(in[first]))>>;
  Result value = static_cast<Result>(initial);
  for (long long i = first; i < last; ++i) value = op(value, transform(in[i]));
  return value;
}
// The least by an operator; of none, what is given.
template <typename Op, typename In, typename T>
static inline T least(In in, long long first, long long last, Op op, T other) {
  if (first >= last) return other;
  T value = static_cast<T>(in[first]);
  for (long long i = first + 1; i < last; ++i) value = op(value, static_cast<T>(in[i]));
  return value;
}
template <typename T, bool kIsMax>
static inline T limit() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::is_specialized) return kIsMax ? Limits::lowest() : Limits::max();
  return T();
}
// Of equal values the first one; `place` counts from the first.
template <bool kIsMax, typename In>
static inline KeyValuePair<long long, Value<In>> extreme(In in, long long first, long long last) {
  using T = Value<In>;
  if (first >= last) return {1, limit<T, kIsMax>()};
  KeyValuePair<long long, T> best{0, static_cast<T>(in[first])};
  for (long long i = first + 1; i < last; ++i) {
    const T value = in[i];
    if (kIsMax ? best.value < value : value < best.value) best = {i - first, value};
  }
  return best;
}
// A pair of another type, as programs have it.
template <typename Out, typename P>
static inline void put_pair(Out out, const P& pair) {
  using Target = ValueOr<Out, P>;
  Target target;
  target.key = static_cast<decltype(target.key)>(pair.key);
  target.value = static_cast<decltype(target.value)>(pair.value);
  *out = target;
}
struct Same {
  template <typename T>
  T&& operator()(T&& value) const {
    return static_cast<T&&>(value);
  }
};

}  // namespace loom_detail

struct DeviceReduce {
  template <typename In, typename Out, typename N, typename Op, typename Transform, typename T>
  static cudaError_t TransformReduce(void* temporary, size_t& bytes, In in, Out out, N n, Op op,
                                     Transform transform, T initial, cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceReduce", temporary, bytes, stream,
        [](auto in, auto out, N n, Op op, Transform transform, T initial) {
          const typename loom_detail::Now<T>::type first = initial;
          *out = loom_detail::reduced(in, 0, static_cast<long long>(n), op, first, transform);
        },
        in, out, n, op, transform, initial);
  }
  template <typename In, typename Out, typename N, typename Op, typename T>
  static cudaError_t Reduce(void* temporary, size_t& bytes, In in, Out out, N n, Op op, T initial,
                            cudaStream_t stream = nullptr, bool = false) {
    return TransformReduce(temporary, bytes, in, out, n, op, loom_detail::Same(), initial, stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Sum(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr,
                         bool = false) {
    using T = loom_detail::ValueOr<Out, loom_detail::Value<In>>;
    return Reduce(temporary, bytes, in, out, n, cub::Sum(), T(), stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Max(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr,
                         bool = false) {
    return first_and<true>(temporary, bytes, in, out, n, cub::Max(), stream);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Min(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr,
                         bool = false) {
    return first_and<false>(temporary, bytes, in, out, n, cub::Min(), stream);
  }
  // To a KeyValuePair of the place and the value.
  template <typename In, typename Out, std::integral N>
  static cudaError_t ArgMin(void* temporary, size_t& bytes, In in, Out out, N n,
                            cudaStream_t stream = nullptr, bool = false) {
    return to_pair<false>(temporary, bytes, in, out, n, stream);
  }
  template <typename In, typename Out, std::integral N>
  static cudaError_t ArgMax(void* temporary, size_t& bytes, In in, Out out, N n,
                            cudaStream_t stream = nullptr, bool = false) {
    return to_pair<true>(temporary, bytes, in, out, n, stream);
  }
  // To the value and the place.
  template <typename In, typename Out, loom_detail::Iterator Place, std::integral N>
  static cudaError_t ArgMin(void* temporary, size_t& bytes, In in, Out out, Place place, N n,
                            cudaStream_t stream = nullptr) {
    return to_two<false>(temporary, bytes, in, out, place, n, stream);
  }
  template <typename In, typename Out, loom_detail::Iterator Place, std::integral N>
  static cudaError_t ArgMax(void* temporary, size_t& bytes, In in, Out out, Place place, N n,
                            cudaStream_t stream = nullptr) {
    return to_two<true>(temporary, bytes, in, out, place, n, stream);
  }
  // Of each run of equal keys.
  template <typename K, typename KO, typename In, typename Out, typename Count, typename Op, typename N>
  static cudaError_t ReduceByKey(void* temporary, size_t& bytes, K keys, KO keys_out, In in, Out out,
                                 Count count, Op op, N n, cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DeviceReduce", temporary, bytes, stream,
        [](auto keys, auto keys_out, auto in, auto out, auto count, Op op, N n) {
          using Key = loom_detail::Value<K>;
          using T = loom_detail::Accumulated<Op, loom_detail::Value<In>, In>;
          N runs = 0;
          for (N i = 0; i < n; ++runs) {
            Key key = keys[i];
            T value = in[i];
            keys_out[runs] = key;
            for (++i; i < n && static_cast<Key>(keys[i]) == key; ++i) {
              value = op(value, static_cast<loom_detail::Value<In>>(in[i]));
            }
            out[runs] = value;
          }
          *count = runs;
        },
        keys, keys_out, in, out, count, op, n);
  }

 private:
  template <bool kIsMax, typename In, typename Out, typename N, typename Op>
  static cudaError_t first_and(void* temporary, size_t& bytes, In in, Out out, N n, Op op,
                               cudaStream_t stream) {
    return loom_detail::command(
        "cub::DeviceReduce", temporary, bytes, stream,
        [](auto in, auto out, N n, Op op) {
          using T = loom_detail::Value<In>;
          *out = loom_detail::least(in, 0, static_cast<long long>(n), op, loom_detail::limit<T, kIsMax>());
        },
        in, out, n, op);
  }
  template <bool kIsMax, typename In, typename Out, typename N>
  static cudaError_t to_pair(void* temporary, size_t& bytes, In in, Out out, N n, cudaStream_t stream) {
    return loom_detail::command(
        "cub::DeviceReduce", temporary, bytes, stream,
        [](auto in, auto out, N n) {
          loom_detail::put_pair(out, loom_detail::extreme<kIsMax>(in, 0, static_cast<long long>(n)));
        },
        in, out, n);
  }
  template <bool kIsMax, typename In, typename Out, typename Place, typename N>
  static cudaError_t to_two(void* temporary, size_t& bytes, In in, Out out, Place place, N n,
                            cudaStream_t stream) {
    return loom_detail::command(
        "cub::DeviceReduce", temporary, bytes, stream,
        [](auto in, auto out, auto place, N n) {
          const auto best = loom_detail::extreme<kIsMax>(in, 0, static_cast<long long>(n));
          *out = best.value;
          *place = static_cast<loom_detail::Value<Place>>(best.key);
        },
        in, out, place, n);
  }
};

// The same of segments: from one offset to another.
struct DeviceSegmentedReduce {
  template <typename In, typename Out, typename N, typename B, typename E, typename Op, typename T>
  static cudaError_t Reduce(void* temporary, size_t& bytes, In in, Out out, N segments, B begins, E ends,
                            Op op, T initial, cudaStream_t stream = nullptr, bool = false) {
    return each(
        temporary, bytes, stream,
        [](auto in, auto out, long long first, long long last, Op op, T initial) {
          loom_detail::Same same;
          *out = loom_detail::reduced(in, first, last, op, initial, same);
        },
        in, out, segments, begins, ends, op, initial);
  }
  template <typename In, typename Out, typename N, typename B, typename E>
  static cudaError_t Sum(void* temporary, size_t& bytes, In in, Out out, N segments, B begins, E ends,
                         cudaStream_t stream = nullptr, bool = false) {
    using T = loom_detail::ValueOr<Out, loom_detail::Value<In>>;
    return Reduce(temporary, bytes, in, out, segments, begins, ends, cub::Sum(), T(), stream);
  }
#define LOOM_CUB_EXTREME(name, arg_name, Op, kIsMax)                                                        \
  template <typename In, typename Out, typename N, typename B, typename E>                                  \
  static cudaError_t name(void* temporary, size_t& bytes, In in, Out out, N segments, B begins, E ends,     \
                          cudaStream_t stream = nullptr, bool = false) {                                    \
    return each(                                                                                            \
        temporary, bytes, stream,                                                                           \
        [](auto in, auto out, long long first, long long last) {                                            \
          using T = loom_detail::Value<In>;                                                                 \
          *out = loom_detail::least(in, first, last, Op(), loom_detail::limit<T, kIsMax>());                \
        },                                                                                                  \
        in, out, segments, begins, ends);                                                                   \
  }                                                                                                         \
  template <typename In, typename Out, typename N, typename B, typename E>                                  \
  static cudaError_t arg_name(void* temporary, size_t& bytes, In in, Out out, N segments, B begins, E ends, \
                              cudaStream_t stream = nullptr, bool = false) {                                \
    return each(                                                                                            \
        temporary, bytes, stream,                                                                           \
        [](auto in, auto out, long long first, long long last) {                                            \
          loom_detail::put_pair(out, loom_detail::extreme<kIsMax>(in, first, last));                        \
        },                                                                                                  \
        in, out, segments, begins, ends);                                                                   \
  }
  LOOM_CUB_EXTREME(Max, ArgMax, cub::Max, true)
  LOOM_CUB_EXTREME(Min, ArgMin, cub::Min, false)
#undef LOOM_CUB_EXTREME

 private:
  template <typename F, typename In, typename Out, typename N, typename B, typename E, typename... A>
  static cudaError_t each(void* temporary, size_t& bytes, cudaStream_t stream, F f, In in, Out out,
                          N segments, B begins, E ends, A... arguments) {
    return loom_detail::command(
        "cub::DeviceSegmentedReduce", temporary, bytes, stream,
        [f](auto in, auto out, N segments, auto begins, auto ends, A... arguments) {
          for (N s = 0; s < segments; ++s) {
            f(in, out + s, static_cast<long long>(begins[s]), static_cast<long long>(ends[s]), arguments...);
          }
        },
        in, out, segments, begins, ends, arguments...);
  }
};

}  // namespace cub
