#pragma once

#include "cub/common.h"

namespace cub {

template <typename T, int X, int Items, int kBins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int Y = 1,
          int Z = 1, int = 0>
class BlockHistogram {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  BlockHistogram() = default;
  explicit BlockHistogram(TempStorage&) {}

  template <typename C>
  void InitHistogram(C (&counts)[kBins]) {
    for (int bin = static_cast<int>(loom_cuda::thread_rank()); bin < kBins; bin += X * Y * Z) counts[bin] = 0;
  }
  // Adds to what is there.
  template <typename C>
  void Composite(T (&items)[Items], C (&counts)[kBins]) {
    __syncthreads();
    for (const T& item : items) {
      const auto bin = static_cast<long long>(item);
      if (bin >= 0 && bin < kBins) atomicAdd(&counts[bin], 1);
    }
    __syncthreads();
  }
  template <typename C>
  void Histogram(T (&items)[Items], C (&counts)[kBins]) {
    InitHistogram(counts);
    Composite(items, counts);
  }
};

}  // namespace cub
