// Arrays whose rows begin where a cache line does, so that no vector lies across two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace loom {

inline constexpr size_t kCacheLineBytes = 64;

struct AlignedDelete {
  void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kCacheLineBytes}); }
};

template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;

// `count` values that are not set.
template <typename T>
AlignedArray<T> aligned_array(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  return AlignedArray<T>(static_cast<T*>(::operator new(bytes, std::align_val_t{kCacheLineBytes})));
}

// Rows of so many values of 4 bytes are a line longer: at a power of two from each other they would take the
// same sets of the caches.
constexpr int64_t row_stride_of(int64_t count) { return count + int64_t{kCacheLineBytes} / 4; }

}  // namespace loom
