#pragma once

#include "cub/radix.h"

namespace cub {

// Some bits of a key in their order.
template <typename K>
struct BFEDigitExtractor {
  int first, count;
  explicit BFEDigitExtractor(int first = 0, int count = 0) : first(first), count(count) {}
  template <typename Bits>
  int Digit(Bits key) const {
    return static_cast<int>(BFE(static_cast<unsigned long long>(key), first, count));
  }
};
template <typename K>
struct ShiftDigitExtractor {
  int first, mask;
  explicit ShiftDigitExtractor(int first = 0, int count = 0) : first(first), mask((1 << count) - 1) {}
  template <typename Bits>
  int Digit(Bits key) const {
    return static_cast<int>(key >> first) & mask;
  }
};

namespace loom_detail {

// Where each key goes when a block's keys are sorted by a digit: one thread counts.
template <int kThreads, int kRadixBits, bool kIsDescending, bool kIsWarpStriped>
class BlockRank {
 public:
  static constexpr int BINS_TRACKED_PER_THREAD = ((1 << kRadixBits) + kThreads - 1) / kThreads;
  struct alignas(16) TempStorage {
    int starts[1 << kRadixBits];
    int* ranks[kThreads];  // on the threads' stacks, where first the bins of their keys are
  };
  explicit BlockRank(TempStorage& storage) : storage_(storage) {}

  template <typename K, int Items, typename Extractor>
  void RankKeys(K (&keys)[Items], int (&ranks)[Items], Extractor extractor) {
    const auto rank = static_cast<int>(loom_cuda::thread_rank());
    int own[Items];
    for (int i = 0; i < Items; ++i) own[i] = bin_of(extractor.Digit(keys[i]));
    storage_.ranks[rank] = own;
    __syncthreads();
    if (rank == 0) count(Items);
    __syncthreads();
    for (int i = 0; i < Items; ++i) ranks[i] = own[i];
  }
  // Also returns how many keys are in front of each bin, a few bins a thread.
  template <typename K, int Items, typename Extractor>
  void RankKeys(K (&keys)[Items], int (&ranks)[Items], Extractor extractor,
                int (&starts)[BINS_TRACKED_PER_THREAD]) {
    RankKeys(keys, ranks, extractor);
    for (int i = 0; i < BINS_TRACKED_PER_THREAD; ++i) {
      const int bin = static_cast<int>(loom_cuda::thread_rank()) * BINS_TRACKED_PER_THREAD + i;
      if (bin < kBins) starts[i] = storage_.starts[bin_of(bin)];
    }
    __syncthreads();
  }

 private:
  static constexpr int kBins = 1 << kRadixBits;
  static int bin_of(int digit) { return kIsDescending ? kBins - 1 - digit : digit; }
  void count(int items) {
    const loom_cuda::Unchecked own_memory;
    int next[kBins] = {};
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int i = 0; i < items; ++i) ++next[storage_.ranks[thread][i]];
    }
    int sum = 0;
    for (int bin = 0; bin < kBins; ++bin) {
      const int own = next[bin];
      storage_.starts[bin] = next[bin] = sum;
      sum += own;
    }
    // In the order of the keys: a thread's are in a row, or a warp has first ones, second ones, and so on.
    constexpr int kGroup = kIsWarpStriped ? 32 : 1;
    for (int group = 0; group < kThreads; group += kGroup) {
      for (int i = 0; i < items; ++i) {
        for (int thread = group; thread < group + kGroup && thread < kThreads; ++thread) {
          int& place = storage_.ranks[thread][i];
          place = next[place]++;
        }
      }
    }
  }
  TempStorage& storage_;
};

}  // namespace loom_detail

template <int X, int kRadixBits, bool kIsDescending, bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS,
          int = 0, int Y = 1, int Z = 1, int = 0>
using BlockRadixRank = loom_detail::BlockRank<X * Y * Z, kRadixBits, kIsDescending, false>;
template <int X, int kRadixBits, bool kIsDescending, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int Y = 1,
          int Z = 1, int = 0>
using BlockRadixRankMatch = loom_detail::BlockRank<X * Y * Z, kRadixBits, kIsDescending, true>;

}  // namespace cub
