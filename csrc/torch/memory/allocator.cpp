#include "torch/memory/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstring>

#include "runtime/worlds.h"
#include "torch/core/device.h"
#include "torch/memory/register.h"

namespace loom::glue {

namespace {

using c10::CachingDeviceAllocator::DeviceStats;

std::atomic<void (*)()> memory_check{nullptr};

c10::CachingAllocator::Stat to_torch(const runtime::Stat& stat) {
  c10::CachingAllocator::Stat out;
  out.current = stat.current;
  out.peak = stat.peak;
  out.allocated = stat.allocated;
  out.freed = stat.freed;
  return out;
}

void copy_array(const runtime::StatArray& from, c10::CachingAllocator::StatArray& to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = to_torch(from[i]);
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const runtime::Runtime& seen = devices();  // initialises before the current device is asked for
    const int device = runtime::current_device();
    void* memory = take_device_memory(seen.device(device), bytes);
    return {memory, memory, &free_device_memory,
            c10::Device(device_type(), static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (bytes == 0) return;
    const int device = devices().device_of(destination);
    translated([&] { runtime::copy(runtime::current_stream_of(device), destination, source, bytes); });
  }

  bool initialized() override { return runtime::is_initialized(); }
  void emptyCache(c10::MempoolId_t pool) override {
    check_memory();
    for (int device = 0; device < devices().device_count(); ++device) {
      translated([&] { devices().device(device).allocator->empty_cache({pool.first, pool.second}); });
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    runtime::Runtime& runtime = devices();
    const int device = runtime.device_of(data.get());
    if (device < 0) return;
    const int64_t id = stream.device_index() == device
                           ? stream.id()
                           : runtime::foreign_stream(stream.device_index(), stream.id());
    translated(
        [&] { runtime.device(device).allocator->record_stream(runtime.device_address(data.get()), id); });
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const runtime::AllocatorStats stats = allocator(index).stats();
    DeviceStats out;
    copy_array(stats.allocation, out.allocation);
    copy_array(stats.segment, out.segment);
    copy_array(stats.active, out.active);
    copy_array(stats.inactive_split, out.inactive_split);
    copy_array(stats.allocated_bytes, out.allocated_bytes);
    copy_array(stats.reserved_bytes, out.reserved_bytes);
    copy_array(stats.active_bytes, out.active_bytes);
    copy_array(stats.inactive_split_bytes, out.inactive_split_bytes);
    copy_array(stats.requested_bytes, out.requested_bytes);
    out.num_alloc_retries = stats.num_alloc_retries;
    out.num_ooms = stats.num_ooms;
    out.num_device_alloc = stats.num_device_alloc;
    out.num_device_free = stats.num_device_free;
    out.oversize_allocations = to_torch(stats.oversize_allocations);
    out.oversize_segments = to_torch(stats.oversize_segments);
    out.num_sync_all_streams = stats.num_sync_all_streams;
    out.max_split_size = stats.max_split_size;
    return out;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { allocator(index).reset_accumulated_stats(); }
  void resetPeakStats(c10::DeviceIndex index) override { allocator(index).reset_peak_stats(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    check_memory();
    const driver::MemoryInfo info = allocator(index).memory_info();
    return {static_cast<size_t>(info.free_bytes), static_cast<size_t>(info.total_bytes)};
  }

 private:
  static runtime::CachingAllocator& allocator(c10::DeviceIndex index) {
    check_device_index(index);
    return *devices().device(index).allocator;
  }
};

// Leaked: storages keep a pointer to it until the process ends.
DeviceAllocator& allocator_instance() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

}  // namespace

void set_memory_check(void (*check)()) { memory_check.store(check); }

void check_memory() {
  if (auto* const check = memory_check.load()) check();
}

void register_allocator() { c10::SetAllocator(device_type(), &allocator_instance()); }

c10::Allocator* device_allocator() { return &allocator_instance(); }

}  // namespace loom::glue
