#include "torch/core/device_memory.h"

#include <c10/core/Allocator.h>

#include "runtime/ipc/shared_memory.h"
#include "runtime/worlds.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace {

// To PyTorch's profiler, which shows them beside the ops; `sign` −1: about to be freed.
void report_to_profiler(const runtime::Device& device, void* address, int sign) {
  const runtime::CachingAllocator& allocator = *device.allocator;
  const auto bytes = sign * static_cast<int64_t>(allocator.block_bytes(address));
  const runtime::AllocatorStats stats = allocator.stats();
  c10::reportMemoryUsageToProfiler(address, bytes, static_cast<size_t>(stats.allocated_bytes[0].current),
                                   static_cast<size_t>(stats.reserved_bytes[0].current),
                                   c10::Device(device_type(), static_cast<c10::DeviceIndex>(device.logical)));
}

}  // namespace

void free_device_memory(void* address) {
  // In a forked child the memory belongs to the parent: there is nothing to give back.
  if (address == nullptr || !runtime::is_initialized() || runtime::in_bad_fork()) return;
  const runtime::Place place = runtime::locate(address);
  if (place.device == nullptr || runtime::shared::release(place.device_address)) return;
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(*place.device, place.device_address, -1);
  }
  place.device->allocator->deallocate(place.device_address);
}

void* take_device_memory(const runtime::Device& device, size_t bytes) {
  void* const block =
      translated([&] { return device.allocator->allocate(bytes, runtime::current_stream(device.logical)); });
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(device, block, 1);
  }
  return block;
}

}  // namespace loom::glue
