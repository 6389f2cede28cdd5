#pragma once

#include "cub/device/command.h"

namespace cub {

// Keeps some items, in their order, and writes how many. Without an output they stay where they are.
struct DeviceSelect {
  template <typename In, typename F, typename Out, loom_detail::Iterator Count, std::integral N, typename P>
  static cudaError_t FlaggedIf(void* temporary, size_t& bytes, In in, F flags, Out out, Count count, N n,
                               P keeps, cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceSelect", temporary, bytes, stream,
        [](auto in, auto flags, auto out, auto count, N n, P keeps) {
          N kept = 0;
          for (N i = 0; i < n; ++i) {
            if (!keeps(flags[i])) continue;
            out[kept] = static_cast<loom_detail::Value<In>>(in[i]);
            ++kept;
          }
          *count = kept;
        },
        in, flags, out, count, n, keeps);
  }
  template <typename In, typename F, loom_detail::Iterator Count, std::integral N, typename P>
  static cudaError_t FlaggedIf(void* temporary, size_t& bytes, In data, F flags, Count count, N n, P keeps,
                               cudaStream_t stream = nullptr) {
    return FlaggedIf(temporary, bytes, data, flags, data, count, n, keeps, stream);
  }
  template <typename In, typename F, typename Out, loom_detail::Iterator Count, std::integral N>
  static cudaError_t Flagged(void* temporary, size_t& bytes, In in, F flags, Out out, Count count, N n,
                             cudaStream_t stream = nullptr, bool = false) {
    return FlaggedIf(temporary, bytes, in, flags, out, count, n, CastOp<bool>(), stream);
  }
  template <typename In, typename F, loom_detail::Iterator Count, std::integral N>
  static cudaError_t Flagged(void* temporary, size_t& bytes, In data, F flags, Count count, N n,
                             cudaStream_t stream = nullptr) {
    return FlaggedIf(temporary, bytes, data, flags, data, count, n, CastOp<bool>(), stream);
  }
  template <typename In, typename Out, loom_detail::Iterator Count, std::integral N, typename P>
  static cudaError_t If(void* temporary, size_t& bytes, In in, Out out, Count count, N n, P keeps,
                        cudaStream_t stream = nullptr, bool = false) {
    return FlaggedIf(temporary, bytes, in, in, out, count, n, keeps, stream);
  }
  template <typename In, loom_detail::Iterator Count, std::integral N, typename P>
    requires(!std::convertible_to<P, cudaStream_t>)
  static cudaError_t If(void* temporary, size_t& bytes, In data, Count count, N n, P keeps,
                        cudaStream_t stream = nullptr) {
    return FlaggedIf(temporary, bytes, data, data, data, count, n, keeps, stream);
  }
  // The first of each run of equal items.
  template <typename In, typename Out, loom_detail::Iterator Count, std::integral N,
            typename Equal = Equality>
    requires(!std::convertible_to<Equal, cudaStream_t>)
  static cudaError_t Unique(void* temporary, size_t& bytes, In in, Out out, Count count, N n,
                            Equal equal = {}, cudaStream_t stream = nullptr) {
    return UniqueByKey(temporary, bytes, in, in, out, ::thrust::discard_iterator<>(), count, n, equal,
                       stream);
  }
  template <typename In, typename Out, loom_detail::Iterator Count, std::integral N>
  static cudaError_t Unique(void* temporary, size_t& bytes, In in, Out out, Count count, N n,
                            cudaStream_t stream, bool = false) {
    return Unique(temporary, bytes, in, out, count, n, Equality(), stream);
  }
  template <typename K, typename In, typename KO, typename Out, loom_detail::Iterator Count, std::integral N,
            typename Equal = Equality>
    requires(!std::convertible_to<Equal, cudaStream_t>)
  static cudaError_t UniqueByKey(void* temporary, size_t& bytes, K keys, In in, KO keys_out, Out out,
                                 Count count, N n, Equal equal = {}, cudaStream_t stream = nullptr) {
    return loom_detail::command(
        "cub::DeviceSelect", temporary, bytes, stream,
        [](auto keys, auto in, auto keys_out, auto out, auto count, N n, Equal equal) {
          N kept = 0;
          if (n > 0) {
            loom_detail::Value<K> before = keys[0];
            for (N i = 0; i < n; ++i) {
              const loom_detail::Value<K> own = keys[i];
              if (i == 0 || !equal(before, own)) {
                out[kept] = static_cast<loom_detail::Value<In>>(in[i]);
                keys_out[kept] = own;
                ++kept;
              }
              before = own;
            }
          }
          *count = kept;
        },
        keys, in, keys_out, out, count, n, equal);
  }
  template <typename K, typename In, typename KO, typename Out, loom_detail::Iterator Count, std::integral N>
  static cudaError_t UniqueByKey(void* temporary, size_t& bytes, K keys, In in, KO keys_out, Out out,
                                 Count count, N n, cudaStream_t stream, bool = false) {
    return UniqueByKey(temporary, bytes, keys, in, keys_out, out, count, n, Equality(), stream);
  }
};

// Those that are chosen first, in their order; the others behind them, from the end on.
struct DevicePartition {
  template <typename In, typename F, typename Out, typename Count, std::integral N>
  static cudaError_t Flagged(void* temporary, size_t& bytes, In in, F flags, Out out, Count count, N n,
                             cudaStream_t stream = nullptr, bool = false) {
    return split(temporary, bytes, in, flags, out, count, n, CastOp<bool>(), stream);
  }
  template <typename In, typename Out, loom_detail::Iterator Count, std::integral N, typename P>
  static cudaError_t If(void* temporary, size_t& bytes, In in, Out out, Count count, N n, P is_chosen,
                        cudaStream_t stream = nullptr, bool = false) {
    return split(temporary, bytes, in, in, out, count, n, is_chosen, stream);
  }
  // Into three outputs, each in its order.
  template <typename In, typename A, typename B, typename C, loom_detail::Iterator Count, std::integral N,
            typename P, typename Q>
  static cudaError_t If(void* temporary, size_t& bytes, In in, A first, B second, C rest, Count counts, N n,
                        P is_first, Q is_second, cudaStream_t stream = nullptr, bool = false) {
    return loom_detail::command(
        "cub::DevicePartition", temporary, bytes, stream,
        [](auto in, auto first, auto second, auto rest, auto counts, N n, P is_first, Q is_second) {
          N given[3] = {0, 0, 0};
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            if (is_first(own)) {
              first[given[0]++] = own;
            } else if (is_second(own)) {
              second[given[1]++] = own;
            } else {
              rest[given[2]++] = own;
            }
          }
          counts[0] = given[0];
          counts[1] = given[1];
        },
        in, first, second, rest, counts, n, is_first, is_second);
  }

 private:
  template <typename In, typename F, typename Out, typename Count, typename N, typename P>
  static cudaError_t split(void* temporary, size_t& bytes, In in, F flags, Out out, Count count, N n,
                           P is_chosen, cudaStream_t stream) {
    return loom_detail::command(
        "cub::DevicePartition", temporary, bytes, stream,
        [](auto in, auto flags, auto out, auto count, N n, P is_chosen) {
          N chosen = 0, others = 0;
          for (N i = 0; i < n; ++i) {
            const loom_detail::Value<In> own = in[i];
            out[is_chosen(flags[i]) ? chosen++ : n - ++others] = own;
          }
          *count = chosen;
        },
        in, flags, out, count, n, is_chosen);
  }
};

// Runs of equal items.
struct DeviceRunLengthEncode {
  template <typename In, typename Out, typename Length, typename Count, typename N>
  static cudaError_t Encode(void* temporary, size_t& bytes, In in, Out out, Length lengths, Count count, N n,
                            cudaStream_t stream = nullptr, bool = false) {
    return each_run(
        temporary, bytes, in, count, n, stream,
        [](auto own, N, N length, N run, auto out, auto lengths) {
          out[run] = own;
          lengths[run] = length;
          return true;
        },
        out, lengths);
  }
  // Those of more than one item.
  template <typename In, typename Offset, typename Length, typename Count, typename N>
  static cudaError_t NonTrivialRuns(void* temporary, size_t& bytes, In in, Offset offsets, Length lengths,
                                    Count count, N n, cudaStream_t stream = nullptr, bool = false) {
    return each_run(
        temporary, bytes, in, count, n, stream,
        [](auto, N first, N length, N run, auto offsets, auto lengths) {
          if (length < 2) return false;
          offsets[run] = first;
          lengths[run] = length;
          return true;
        },
        offsets, lengths);
  }

 private:
  template <typename In, typename Count, typename N, typename F, typename A, typename B>
  static cudaError_t each_run(void* temporary, size_t& bytes, In in, Count count, N n, cudaStream_t stream,
                              F give, A a, B b) {
    return loom_detail::command(
        "cub::DeviceRunLengthEncode", temporary, bytes, stream,
        [give](auto in, auto count, N n, auto a, auto b) {
          N runs = 0;
          for (N i = 0; i < n;) {
            const loom_detail::Value<In> own = in[i];
            const N first = i;
            for (++i; i < n && static_cast<loom_detail::Value<In>>(in[i]) == own;) ++i;
            runs += give(own, first, static_cast<N>(i - first), runs, a, b) ? 1 : 0;
          }
          *count = runs;
        },
        in, count, n, a, b);
  }
};

}  // namespace cub
