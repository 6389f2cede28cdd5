// Allocators for test_pluggable_allocator.py: of device memory, of host memory, and broken ones.
#include <sys/types.h>

#include <atomic>
#include <cstdlib>

#include "loom_memory.h"

extern "C" {

std::atomic<long> num_allocs{0}, num_frees{0}, last_size{0}, last_free_size{0};
std::atomic<int> last_device{-1};
std::atomic<void*> last_stream{nullptr};

static void note(ssize_t size, int device, void* stream) {
  ++num_allocs;
  last_size = size;
  last_device = device;
  last_stream = stream;
}

void* device_alloc(ssize_t size, int device, void* stream) {
  note(size, device, stream);
  return loom_malloc(static_cast<size_t>(size), device);
}
void device_free(void* address, ssize_t size, int, void*) {
  ++num_frees;
  last_free_size = size;
  loom_free(address);
}

void* host_alloc(ssize_t size, int device, void* stream) {
  note(size, device, stream);
  return std::malloc(static_cast<size_t>(size));
}
void host_free(void* address, ssize_t size, int, void*) {
  ++num_frees;
  last_free_size = size;
  std::free(address);
}

void* null_alloc(ssize_t, int, void*) { return nullptr; }
void* garbage_alloc(ssize_t, int, void*) { return reinterpret_cast<void*>(0x1000); }
void* foreign_alloc(ssize_t size, int device, void*) {
  return loom_malloc(static_cast<size_t>(size), 1 - device);
}
void* repeating_alloc(ssize_t, int, void*) {
  static char memory[4 << 20];
  return memory;
}
void no_free(void*, ssize_t, int, void*) {}
}
