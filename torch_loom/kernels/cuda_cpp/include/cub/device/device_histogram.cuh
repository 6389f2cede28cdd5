#pragma once

#include <algorithm>
#include <array>

#include "cub/device/command.h"

namespace cub {

// Samples that are below the first level, or not below the last one, are not counted.
struct DeviceHistogram {
  template <typename In, typename C, typename L, std::integral N>
  static cudaError_t HistogramEven(void* temporary, size_t& bytes, In samples, C* counts, int num_levels,
                                   L lower, L upper, N n, cudaStream_t stream = nullptr, bool = false) {
    return even<1, 1, In, C, L>(temporary, bytes, samples, {counts}, {num_levels}, {lower}, {upper}, n, 1, n,
                                stream);
  }
  // Of rows that begin every so many bytes.
  template <typename In, typename C, typename L, std::integral N>
  static cudaError_t HistogramEven(void* temporary, size_t& bytes, In samples, C* counts, int num_levels,
                                   L lower, L upper, N row, N rows, size_t row_bytes,
                                   cudaStream_t stream = nullptr, bool = false) {
    const auto step = static_cast<long long>(row_bytes / sizeof(loom_detail::Value<In>));
    return even<1, 1, In, C, L>(temporary, bytes, samples, {counts}, {num_levels}, {lower}, {upper}, row,
                                rows, step, stream);
  }
  template <typename In, typename C, typename L, std::integral N>
  static cudaError_t HistogramRange(void* temporary, size_t& bytes, In samples, C* counts, int num_levels,
                                    const L* levels, N n, cudaStream_t stream = nullptr, bool = false) {
    return range<1, 1, In, C, L>(temporary, bytes, samples, {counts}, {num_levels}, {levels}, n, 1, n,
                                 stream);
  }
  template <typename In, typename C, typename L, std::integral N>
  static cudaError_t HistogramRange(void* temporary, size_t& bytes, In samples, C* counts, int num_levels,
                                    const L* levels, N row, N rows, size_t row_bytes,
                                    cudaStream_t stream = nullptr, bool = false) {
    const auto step = static_cast<long long>(row_bytes / sizeof(loom_detail::Value<In>));
    return range<1, 1, In, C, L>(temporary, bytes, samples, {counts}, {num_levels}, {levels}, row, rows, step,
                                 stream);
  }
  // Of the first channels of pixels.
  template <int kChannels, int kActive, typename In, typename C, typename L, std::integral N>
  static cudaError_t MultiHistogramEven(void* temporary, size_t& bytes, In samples,
                                        C* const (&counts)[kActive], const int (&num_levels)[kActive],
                                        const L (&lower)[kActive], const L (&upper)[kActive], N pixels,
                                        cudaStream_t stream = nullptr, bool = false) {
    return even<kChannels, kActive, In, C, L>(
        temporary, bytes, samples, std::to_array(counts), std::to_array(num_levels), std::to_array(lower),
        std::to_array(upper), pixels, 1, static_cast<long long>(pixels) * kChannels, stream);
  }
  template <int kChannels, int kActive, typename In, typename C, typename L, std::integral N>
  static cudaError_t MultiHistogramRange(void* temporary, size_t& bytes, In samples,
                                         C* const (&counts)[kActive], const int (&num_levels)[kActive],
                                         const L* const (&levels)[kActive], N pixels,
                                         cudaStream_t stream = nullptr, bool = false) {
    return range<kChannels, kActive, In, C, L>(temporary, bytes, samples, std::to_array(counts),
                                               std::to_array(num_levels), std::to_array(levels), pixels, 1,
                                               static_cast<long long>(pixels) * kChannels, stream);
  }

 private:
  template <int kChannels, int kActive, typename C, typename In, typename F, typename... A>
  static cudaError_t counted(void* temporary, size_t& bytes, cudaStream_t stream, F bin_of, In samples,
                             std::array<C*, kActive> counts, std::array<int, kActive> num_levels,
                             long long row, long long rows, long long step, A... arguments) {
    return loom_detail::command(
        "cub::DeviceHistogram", temporary, bytes, stream,
        [bin_of](auto samples, const std::array<C*, kActive>& counts,
                 const std::array<int, kActive>& num_levels, long long row, long long rows, long long step,
                 const A&... arguments) {
          for (int c = 0; c < kActive; ++c) std::fill_n(counts[c], std::max(0, num_levels[c] - 1), C(0));
          for (long long r = 0; r < rows; ++r) {
            for (long long i = 0; i < row; ++i) {
              for (int c = 0; c < kActive; ++c) {
                const loom_detail::Value<In> sample = samples[r * step + i * kChannels + c];
                const int bin = bin_of(sample, num_levels[c], arguments[c]...);
                if (bin >= 0) ++counts[c][bin];
              }
            }
          }
        },
        samples, counts, num_levels, row, rows, step, arguments...);
  }
  template <int kChannels, int kActive, typename In, typename C, typename L>
  static cudaError_t even(void* temporary, size_t& bytes, In samples, std::array<C*, kActive> counts,
                          std::array<int, kActive> num_levels, std::array<L, kActive> lower,
                          std::array<L, kActive> upper, long long row, long long rows, long long step,
                          cudaStream_t stream) {
    return counted<kChannels, kActive, C>(
        temporary, bytes, stream,
        [](auto given, int num_levels, L lower, L upper) {
          using Common = std::common_type_t<decltype(given), L>;
          const auto sample = static_cast<Common>(given), low = static_cast<Common>(lower);
          if (!(sample >= low && sample < static_cast<Common>(upper))) return -1;
          const int bins = num_levels - 1;
          if constexpr (std::is_integral_v<Common>) {
            return static_cast<int>(static_cast<unsigned __int128>(sample - low) *
                                    static_cast<unsigned>(bins) /
                                    static_cast<unsigned __int128>(upper - lower));
          } else {
            const auto scale = static_cast<Common>(bins) / static_cast<Common>(upper - lower);
            return std::min(bins - 1, static_cast<int>((sample - low) * scale));
          }
        },
        samples, counts, num_levels, row, rows, step, lower, upper);
  }
  template <int kChannels, int kActive, typename In, typename C, typename L>
  static cudaError_t range(void* temporary, size_t& bytes, In samples, std::array<C*, kActive> counts,
                           std::array<int, kActive> num_levels, std::array<const L*, kActive> levels,
                           long long row, long long rows, long long step, cudaStream_t stream) {
    return counted<kChannels, kActive, C>(
        temporary, bytes, stream,
        [](auto sample, int num_levels, const L* levels) {
          const auto above = std::upper_bound(levels, levels + num_levels, static_cast<L>(sample)) - levels;
          return above == num_levels ? -1 : static_cast<int>(above) - 1;
        },
        samples, counts, num_levels, row, rows, step, levels);
  }
};

}  // namespace cub
