// A device's addresses, reserved from the host and handed out in granules. Nothing is committed until it is
// touched.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "driver/driver.h"

namespace loom::driver {

// Who may access the memory: any code, none, or only code that uses the engine's addresses.
enum class HostAccess { kFree, kNone, kFenced };

class AddressSpace {
 public:
  static constexpr size_t kGranuleBytes = size_t{2} << 20;

  AddressSpace(int device, int64_t capacity_bytes, HostAccess access);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  void* allocate(size_t bytes, Place place = {});
  void deallocate(void* address, size_t bytes = 0);
  MemoryInfo info() const;
  // address_space_sharing.cpp
  SharedMemory share(const void* address);
  void* map_shared(const ShareHandle& handle, size_t bytes);
  // False for an address of another kind. Finds the program's and the engine's.
  bool locate(const void* address, Address* where) const noexcept {
    const auto value = reinterpret_cast<uintptr_t>(address);
    const size_t num_ranges = num_ranges_.load(std::memory_order_acquire);
    for (size_t i = 0; i < num_ranges; ++i) {
      const Range& range = ranges_[i];
      if (access_ != HostAccess::kFenced) {
        if (value - range.begin >= range.bytes) continue;
        void* const both = const_cast<void*>(address);
        *where = {AddressKind::kDevice, device_, both, both};
        return true;
      }
      uintptr_t offset = value - range.begin;
      if (offset >= range.bytes) offset = value - range.engine_begin;
      if (offset >= range.bytes) continue;
      *where = {AddressKind::kDevice, device_, reinterpret_cast<void*>(range.begin + offset),
                reinterpret_cast<void*>(range.engine_begin + offset)};
      return true;
    }
    return false;
  }

 private:
  // A reservation is larger than the capacity, and another is made when holes between allocations leave no
  // room: a chip maps pages, so holes do not cost it memory. Their number grows with the logarithm of the
  // capacity, and with the number of rooms.
  struct Range {
    uintptr_t begin = 0;
    size_t bytes = 0;
    // Fenced: where the same memory can be touched, and the file that it is.
    uintptr_t engine_begin = 0;
    int file = -1;
  };
  static constexpr size_t kMaxRanges = 256;
  struct SharedFile {
    const int descriptor;
    const size_t bytes;
    ~SharedFile();
  };
  // What lies in a file, since other processes share it.
  struct Shared {
    std::shared_ptr<const SharedFile> file;  // null: another process's
    size_t bytes = 0;                        // of the allocation
    size_t moved = 0;   // of them, those that are in the file: all, unless the host refused
    size_t offset = 0;  // in the file; not 0 for what is left of memory in a room
  };
  struct Room {
    size_t bytes;
    size_t used_bytes;
  };

  // So many bytes or more. Throws Error when the host refuses.
  void reserve(size_t bytes);
  // False, with errno, when the host refuses.
  bool map(Range& range) const;
  const Range* range_of(uintptr_t device_address) const noexcept;
  // Where the contents at a device address of this space lie.
  void* engine_address(uintptr_t device_address) const noexcept;
  void give_back(uintptr_t address, size_t bytes) const noexcept;
  // An address with so much room, or 0.
  uintptr_t take(size_t bytes);
  // The same, with another reservation if need be. Throws Error.
  uintptr_t take_or_reserve(size_t bytes);
  void put_back(uintptr_t address, size_t bytes);

  // Room that an address lies in, or the end.
  std::map<uintptr_t, Room>::iterator room_of(uintptr_t address);
  uintptr_t take_in_room(uintptr_t address, size_t bytes);
  void release_in_room(std::map<uintptr_t, Room>::iterator room, uintptr_t address, size_t bytes);
  // Gives back a part of the allocation at `begin`; the rest stays. False, with errno, when the host does not
  // take the addresses back: they cannot be used again.
  bool cut(uintptr_t begin, uintptr_t address, size_t bytes);

  // address_space_sharing.cpp. These throw SharingError when the host refuses.
  void move_to_file(uintptr_t address, Shared& shared) const;
  void map_file(uintptr_t address, size_t bytes, int file, size_t offset) const;
  // Makes the addresses plain memory of this space again, empty. False when the host refuses.
  bool map_back(uintptr_t address, size_t bytes) const noexcept;

  const int device_;
  const size_t capacity_bytes_;
  const HostAccess access_;
  mutable std::mutex mutex_;
  std::array<Range, kMaxRanges> ranges_;
  std::atomic<size_t> num_ranges_{0};  // published: looking an address up takes no lock
  size_t used_bytes_ = 0;
  std::map<uintptr_t, size_t> free_ranges_;  // address -> bytes, coalesced
  std::map<uintptr_t, size_t> allocations_;  // address -> bytes, whole granules; in a room as few as can be
  std::map<uintptr_t, Room> rooms_;
  std::map<uintptr_t, Shared> shared_;  // some of the allocations, and what map_shared() returned
};

}  // namespace loom::driver
