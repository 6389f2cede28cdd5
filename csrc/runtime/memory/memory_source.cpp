#include "runtime/memory/memory_source.h"

#include <cstdio>
#include <exception>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "runtime/blocking.h"

namespace loom::runtime {

MemorySource::MemorySource(Allocate allocate, Free free) : allocate_(allocate), free_(free) {
  if (allocate == nullptr || free == nullptr) {
    throw InvalidArgument("the functions that allocate and free must not be null");
  }
}

void* MemorySource::allocate(driver::Driver& driver, size_t bytes, const Place& place) const {
  void* const address = allocate_(static_cast<std::ptrdiff_t>(bytes), place.logical_device, place.stream);
  if (address == nullptr) return nullptr;
  try {
    const driver::Address first = driver.locate(address);
    if (first.kind != driver::AddressKind::kDevice) {
      driver.register_memory(place.driver_index, address, bytes);
      return address;
    }
    const driver::Address last = driver.locate(static_cast<const char*>(address) + bytes - 1);
    if (first.device != place.driver_index || last.kind != driver::AddressKind::kDevice ||
        last.device != place.driver_index) {
      throw InvalidArgument("it is not memory of this device");
    }
  } catch (const InvalidArgument& error) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    throw InvalidArgument("the pluggable allocator returned " + std::string(text) + " for " +
                          std::to_string(bytes) + " bytes of device " + std::to_string(place.logical_device) +
                          ", which cannot be used: " + error.what() +
                          "; return what loom_malloc() gave for that device, or memory of the host");
  }
  return address;
}

void MemorySource::deallocate(driver::Driver& driver, void* address, size_t bytes,
                              const Place& place) const noexcept {
  try {
    try {
      driver.unregister_memory(address);
    } catch (const InvalidArgument&) {
      // Device memory: it was never registered.
    }
    free_(address, static_cast<std::ptrdiff_t>(bytes), place.logical_device, place.stream);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch-loom: the free function of a pluggable allocator failed: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "torch-loom: the free function of a pluggable allocator failed\n");
  }
}

namespace memory_mode {

namespace detail {
std::atomic<bool> is_uncached{false};
}

namespace {

std::atomic<bool> is_caching{true};
std::mutex source_mutex;
SourceRef current_source;

void update() noexcept { detail::is_uncached = !is_caching || current_source != nullptr; }

}  // namespace

void set_caching(bool enabled) noexcept {
  std::lock_guard<std::mutex> lock(source_mutex);
  is_caching = enabled;
  update();
}

bool caching() noexcept { return is_caching; }

void set_source(SourceRef source) {
  std::lock_guard<std::mutex> lock(source_mutex);
  current_source = std::move(source);
  update();
}

SourceRef source() {
  std::lock_guard<std::mutex> lock(source_mutex);
  return current_source;
}

}  // namespace memory_mode

namespace {

// Leaked: memory is freed until the process ends.
std::shared_mutex& free_mutex() {
  static auto* mutex = new std::shared_mutex;
  return *mutex;
}

// How often this thread holds it, in either way.
thread_local int free_depth = 0;

}  // namespace

void FreeMutex::lock() {
  if (free_depth == 0) free_mutex().lock();
  ++free_depth;
}

void FreeMutex::unlock() noexcept {
  if (--free_depth == 0) free_mutex().unlock();
}

FreeMutex::Shared::Shared() {
  // The holder may be waiting for Python's lock.
  if (free_depth == 0 && !free_mutex().try_lock_shared()) {
    call_blocking([] { free_mutex().lock_shared(); });
  }
  ++free_depth;
}

// Of a thread that holds it alone, the last to go is its unlock().
FreeMutex::Shared::~Shared() {
  if (--free_depth == 0) free_mutex().unlock_shared();
}

}  // namespace loom::runtime
