// The mirror driver's memory. A device's addresses are numbers to the program: each allocation's contents lie
// in a file of its own that is mapped somewhere else, so only locate() tells where.
#pragma once

#include <map>
#include <shared_mutex>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace loom::mirror {

class Memory {
 public:
  explicit Memory(const driver::DriverConfig& config);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void check_device(int device) const;
  void* allocate(int device, size_t bytes);
  void* allocate_host(size_t bytes);
  void deallocate(void* address);
  driver::MemoryInfo info(int device) const;
  driver::Address locate(const void* address) const noexcept;
  void add(int device, void* address, size_t bytes);
  void remove(void* address);
  driver::SharedMemory share(int device, const void* address) const;
  void* map_shared(int device, const driver::ShareHandle& handle, size_t bytes);

 private:
  struct Allocation {
    size_t bytes;  // whole granules
    char* contents;
    int file;  // -1: another process's
  };
  struct Device {
    uintptr_t begin = 0;
    size_t bytes = 0, capacity = 0, used = 0;
    std::map<uintptr_t, size_t> holes;  // address -> bytes
    std::map<uintptr_t, Allocation> allocations;
  };
  struct HostRange {
    size_t bytes;
    int device;  // -1: pinned
    bool is_own;
  };
  struct Place {
    int device;
    uintptr_t address;
    size_t bytes;
  };

  // With the lock held. take() returns 0 where there is no room.
  static uintptr_t take(Device& device, size_t bytes);
  static void put_back(Device& device, uintptr_t address, size_t bytes);
  void keep(int device, uintptr_t address, const Allocation& allocation);
  bool deallocate_device(uintptr_t address);
  bool overlaps_device(uintptr_t begin, uintptr_t last) const noexcept;

  mutable std::shared_mutex mutex_;
  std::vector<Device> devices_;
  std::map<uintptr_t, Place> contents_;  // where contents are mapped -> whose they are
  std::map<uintptr_t, HostRange> host_;
};

}  // namespace loom::mirror
