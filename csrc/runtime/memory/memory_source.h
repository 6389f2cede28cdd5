// Where an allocator's segments come from: the driver, or functions that the program provides.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/driver.h"

namespace loom::runtime {

// Functions that provide memory in the driver's place. They are called without the allocator's lock, from any
// thread, and may wait for Python's.
class MemorySource {
 public:
  // CUDA's signatures. `stream` is the handle of the stream for which the memory is.
  using Allocate = void* (*)(std::ptrdiff_t bytes, int device, void* stream);
  using Free = void (*)(void* address, std::ptrdiff_t bytes, int device, void* stream);

  // Throws InvalidArgument when one of them is null.
  MemorySource(Allocate allocate, Free free);
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;

  // Where the memory is for: the device, as programs and as the driver number it, and its stream.
  struct Place {
    int logical_device, driver_index;
    driver::Stream stream;
  };

  // Null when the function returned null. Host memory that it returned is registered with the driver as the
  // device's. Throws InvalidArgument when it is another device's, is no memory at all, or overlaps other
  // memory that the driver knows; it is not given back then: it may be in use.
  void* allocate(driver::Driver& driver, size_t bytes, const Place& place) const;
  // All work that uses the memory has finished. What the function throws is printed.
  void deallocate(driver::Driver& driver, void* address, size_t bytes, const Place& place) const noexcept;

 private:
  const Allocate allocate_;
  const Free free_;
};

using SourceRef = std::shared_ptr<const MemorySource>;

// What all allocators do with allocations that go to no private pool.
namespace memory_mode {

namespace detail {
extern std::atomic<bool> is_uncached;
}

// True: each allocation is a segment of its own, taken and given back with it.
inline bool is_uncached() noexcept { return detail::is_uncached.load(std::memory_order_relaxed); }
void set_caching(bool enabled) noexcept;
bool caching() noexcept;
// Segments come from these functions, uncached; null: from the driver. Not to be changed once memory was
// taken.
void set_source(SourceRef source);
SourceRef source();

}  // namespace memory_mode

// While a thread holds it, all others wait before they give memory back to the driver or to a source. May be
// locked again by the same thread, which unlocks it as often.
class FreeMutex {
 public:
  static void lock();
  static void unlock() noexcept;

  // Held by threads that give memory back; any number at once.
  class Shared {
   public:
    Shared();
    ~Shared();
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
  };
};

}  // namespace loom::runtime
