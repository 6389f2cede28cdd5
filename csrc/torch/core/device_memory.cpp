#include "torch/core/device_memory.h"

#include <c10/core/Allocator.h>

#include "runtime/ipc/shared_memory.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace {

// To PyTorch's profiler, which shows them beside the ops; `sign` −1: about to be freed.
void report_to_profiler(int device, void* address, int sign) {
  const runtime::CachingAllocator& allocator = *devices().device(device).allocator;
  const auto bytes = sign * static_cast<int64_t>(allocator.block_bytes(address));
  const runtime::AllocatorStats stats = allocator.stats();
  c10::reportMemoryUsageToProfiler(address, bytes, static_cast<size_t>(stats.allocated_bytes[0].current),
                                   static_cast<size_t>(stats.reserved_bytes[0].current),
                                   c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

void free_device_memory(void* address) {
  runtime::Runtime* runtime = runtime::detail::instance.load(std::memory_order_acquire);
  // In a forked child the memory belongs to the parent: there is nothing to give back.
  if (address == nullptr || runtime == nullptr || runtime::in_bad_fork()) return;
  void* const block = runtime->device_address(address);
  if (runtime::shared::release(block)) return;
  const int device = runtime->device_of(address);
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(device, block, -1);
  }
  runtime->device(device).allocator->deallocate(block);
}

void* take_device_memory(int device, size_t bytes) {
  void* const block = translated(
      [&] { return devices().device(device).allocator->allocate(bytes, runtime::current_stream(device)); });
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(device, block, 1);
  }
  return block;
}

}  // namespace loom::glue
