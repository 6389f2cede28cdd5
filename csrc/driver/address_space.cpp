#include "driver/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace loom::driver {

namespace {

size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

AddressSpace::AddressSpace(int device, int64_t capacity_bytes, bool accessible)
    : device_(device), capacity_bytes_(static_cast<size_t>(capacity_bytes)), accessible_(accessible) {
  reserve();
}

AddressSpace::~AddressSpace() {
  for (size_t i = 0; i < num_ranges_.load(); ++i) {
    munmap(reinterpret_cast<void*>(ranges_[i].begin), ranges_[i].bytes + kGranuleBytes);
  }
}

void AddressSpace::reserve() {
  const size_t num_ranges = num_ranges_.load();
  const int access = accessible_ ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* address = MAP_FAILED;
  size_t usable = 0;
  errno = ENOMEM;
  if (num_ranges < kMaxRanges && capacity_bytes_ <= SIZE_MAX / 4) {
    usable = round_up(2 * capacity_bytes_, kGranuleBytes);
    // One granule more than is used: a gap between this range and the next, so that free ranges of two
    // reservations never coalesce.
    address =
        mmap(nullptr, usable + kGranuleBytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (address == MAP_FAILED) {
    throw Error("cannot reserve address space for the " + std::to_string(capacity_bytes_) +
                " bytes of device " + std::to_string(device_) + ": " + std::strerror(errno) +
                "; lower TORCH_LOOM_MEMORY or TORCH_LOOM_DEVICES, or raise the limit (ulimit -v)");
  }
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t aligned = round_up(begin, kGranuleBytes);
  const size_t whole_granules = (begin + usable - aligned) / kGranuleBytes * kGranuleBytes;
  if (whole_granules != 0) free_ranges_.emplace(aligned, whole_granules);
  ranges_[num_ranges] = {begin, usable};
  num_ranges_.store(num_ranges + 1, std::memory_order_release);
}

uintptr_t AddressSpace::take(size_t bytes) {
  for (auto range = free_ranges_.begin(); range != free_ranges_.end(); ++range) {
    if (range->second < bytes) continue;
    const auto [address, available] = *range;
    free_ranges_.erase(range);
    if (available != bytes) free_ranges_.emplace(address + bytes, available - bytes);
    return address;
  }
  return 0;
}

void* AddressSpace::allocate(size_t bytes) {
  if (bytes == 0) throw InvalidArgument("allocate: bytes must be at least 1, got 0");
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t free_bytes = capacity_bytes_ - used_bytes_;
  const auto out_of_memory = [&](const std::string& reason) {
    return OutOfMemory("device " + std::to_string(device_) + " is out of memory: asked for " +
                           std::to_string(bytes) + " bytes, " + std::to_string(free_bytes) + " of " +
                           std::to_string(capacity_bytes_) + " are free" + reason,
                       device_, static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX})),
                       static_cast<int64_t>(free_bytes), static_cast<int64_t>(capacity_bytes_));
  };
  // Compared before rounding: a huge request must not wrap around to a small one.
  if (bytes > free_bytes || round_up(bytes, kGranuleBytes) > free_bytes) throw out_of_memory("");
  const size_t rounded = round_up(bytes, kGranuleBytes);
  uintptr_t address = take(rounded);
  if (address == 0) {
    try {
      reserve();
    } catch (const Error& error) {
      throw out_of_memory(std::string(" but in pieces, and the host has no more addresses: ") + error.what());
    }
    address = take(rounded);
  }
  allocations_.emplace(address, rounded);
  used_bytes_ += rounded;
  return reinterpret_cast<void*>(address);
}

void AddressSpace::deallocate(void* address) {
  if (address == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations_.end()) {
    throw InvalidArgument("deallocate: the address was not returned by allocate() on device " +
                          std::to_string(device_));
  }
  uintptr_t start = found->first;
  size_t bytes = found->second;
  allocations_.erase(found);
  used_bytes_ -= bytes;
  // The pages go back to the host: device memory that nobody holds costs nothing.
  madvise(address, bytes, MADV_DONTNEED);
  const auto next = free_ranges_.lower_bound(start);
  if (next != free_ranges_.end() && start + bytes == next->first) {
    bytes += next->second;
    free_ranges_.erase(next);
  }
  const auto after = free_ranges_.lower_bound(start);
  if (after != free_ranges_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == start) {
      previous->second += bytes;
      return;
    }
  }
  free_ranges_.emplace(start, bytes);
}

MemoryInfo AddressSpace::info() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {static_cast<int64_t>(capacity_bytes_ - used_bytes_), static_cast<int64_t>(capacity_bytes_)};
}

}  // namespace loom::driver
