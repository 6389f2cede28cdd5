#include "kernel_checks/unwritten.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace loom::kernel_checks {

void UnwrittenMemory::add(uintptr_t begin, uintptr_t end) {
  if (begin >= end) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  remove_locked(begin, end);
  ranges_[begin] = end;
}

void UnwrittenMemory::remove_locked(uintptr_t begin, uintptr_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [first, last] = *at;
    at = ranges_.erase(at);
    if (first < begin) ranges_[first] = begin;
    if (last > end) {
      ranges_[end] = last;
      return;
    }
  }
}

void UnwrittenMemory::remove(uintptr_t begin, uintptr_t end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  remove_locked(begin, end);
}

void UnwrittenMemory::remove(uintptr_t address, const int64_t* sizes, const int64_t* strides, int num_dims,
                             int64_t item_bytes) {
  // Dimensions whose elements are neighbours make one piece.
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride in bytes, size
  for (int dim = 0; dim < num_dims; ++dim) {
    if (sizes[dim] == 0) return;
    if (sizes[dim] > 1) dims.emplace_back(strides[dim] * item_bytes, sizes[dim]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t piece = item_bytes;
  size_t first = 0;
  for (; first < dims.size() && dims[first].first <= piece && dims[first].first >= 0; ++first)
    piece = std::max(piece, dims[first].first * (dims[first].second - 1) + piece);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ranges_.empty()) return;
  std::vector<int64_t> index(dims.size(), 0);
  while (true) {
    intptr_t offset = 0;
    for (size_t dim = first; dim < dims.size(); ++dim) offset += index[dim] * dims[dim].first;
    remove_locked(address + offset, address + offset + piece);
    size_t dim = first;
    while (dim < dims.size() && ++index[dim] == dims[dim].second) index[dim++] = 0;
    if (dim == dims.size()) return;
  }
}

bool UnwrittenMemory::holds(uintptr_t begin, uintptr_t end) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = ranges_.lower_bound(end);
  return at != ranges_.begin() && std::prev(at)->second > begin;
}

}  // namespace loom::kernel_checks
