#pragma once

#include "cub/common.h"

namespace cub {

// Where the threads of a block put a value each, and the rows that its first warp reads one behind the other.
template <typename T, int N, int = 0>
struct BlockRakingLayout {
  static constexpr int SHARED_ELEMENTS = N;
  static constexpr int MAX_RAKING_THREADS = N < 32 ? N : 32;
  static constexpr int SEGMENT_LENGTH = (N + MAX_RAKING_THREADS - 1) / MAX_RAKING_THREADS;
  static constexpr int RAKING_THREADS = (N + SEGMENT_LENGTH - 1) / SEGMENT_LENGTH;
  static constexpr bool UNGUARDED = N % RAKING_THREADS == 0;

  struct alignas(16) _TempStorage {
    T values[RAKING_THREADS * SEGMENT_LENGTH];
  };
  struct TempStorage : Uninitialized<_TempStorage> {};

  static T* PlacementPtr(TempStorage& storage, unsigned thread) { return storage.Alias().values + thread; }
  static T* RakingPtr(TempStorage& storage, unsigned thread) {
    return storage.Alias().values + thread * SEGMENT_LENGTH;
  }
};

}  // namespace cub
