// Memory that was allocated and that nothing has written: what lies there is chance.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace loom::kernel_checks {

// Ranges of addresses. For any thread.
class UnwrittenMemory {
 public:
  // [begin, end) has been allocated.
  void add(uintptr_t begin, uintptr_t end);
  // It has been written, or does not exist any more.
  void remove(uintptr_t begin, uintptr_t end);
  // The same for the elements at address + sum of index * stride, strides in elements.
  void remove(uintptr_t address, const int64_t* sizes, const int64_t* strides, int num_dims,
              int64_t item_bytes);
  // Whether a byte of it has not been written.
  bool holds(uintptr_t begin, uintptr_t end) const;

 private:
  void remove_locked(uintptr_t begin, uintptr_t end);

  mutable std::mutex mutex_;
  std::map<uintptr_t, uintptr_t> ranges_;  // by begin
};

}  // namespace loom::kernel_checks
