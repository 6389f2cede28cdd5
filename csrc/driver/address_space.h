// One reserved range of addresses per device, handed out in granules. Nothing is committed until it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "driver/driver.h"

namespace loom::driver {

class AddressSpace {
 public:
  static constexpr size_t kGranuleBytes = size_t{2} << 20;

  // `accessible`: whether the host may touch the range (the null driver's may not be touched).
  AddressSpace(int device, int64_t capacity_bytes, bool accessible);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  void* allocate(size_t bytes);
  void deallocate(void* address);
  MemoryInfo info() const;
  bool contains(const void* address) const noexcept {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return value >= begin_ && value < end_;
  }

 private:
  void reserve();

  const int device_;
  const size_t capacity_bytes_;
  const bool accessible_;
  mutable std::mutex mutex_;
  // The range is larger than the capacity: a chip maps pages, so holes between allocations do not cost it memory.
  uintptr_t begin_ = 0, end_ = 0;
  size_t used_bytes_ = 0;
  std::map<uintptr_t, size_t> free_ranges_;  // address -> bytes, coalesced
  std::map<uintptr_t, size_t> allocations_;  // address -> bytes, whole granules
};

}  // namespace loom::driver
