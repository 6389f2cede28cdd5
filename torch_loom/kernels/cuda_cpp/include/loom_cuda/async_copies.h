// cuda::memcpy_async: copies that are done when it returns, whatever its caller waits by.
#pragma once
#include <stddef.h>
#include <string.h>

namespace cuda {

// A number of bytes, and how they are aligned.
template <size_t alignment>
struct aligned_size_t {
  static constexpr size_t align = alignment;
  size_t value;
  explicit aligned_size_t(size_t bytes) : value(bytes) {}
  operator size_t() const { return value; }
};

// Not memcpy(): the checks look at each access.
template <typename T, typename U, typename Size, typename Sync>
inline void memcpy_async(T* to, const U* from, Size bytes, Sync&) {
  for (size_t at = 0; at < static_cast<size_t>(bytes); ++at)
    reinterpret_cast<char*>(to)[at] = reinterpret_cast<const char*>(from)[at];
}
template <typename Group, typename T, typename U, typename Size, typename Sync>
inline void memcpy_async(const Group& group, T* to, const U* from, Size bytes, Sync&) {
  for (size_t at = group.thread_rank(); at < static_cast<size_t>(bytes); at += group.num_threads())
    reinterpret_cast<char*>(to)[at] = reinterpret_cast<const char*>(from)[at];
}

}  // namespace cuda
