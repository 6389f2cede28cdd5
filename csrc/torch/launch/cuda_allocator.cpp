// c10::cuda::CUDACachingAllocator, for extensions that take memory from it: the devices' own allocator.
#include <c10/cuda/CUDACachingAllocator.h>

#include "torch/core/device.h"
#include "torch/launch/launch.h"
#include "torch/memory/allocator.h"

namespace c10::cuda::CUDACachingAllocator {

namespace {

using loom::glue::devices;
using loom::glue::translated;

[[noreturn]] void refuse(const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "CUDACachingAllocator::", name,
      "() of C++ is not there for torch-loom's devices: torch.cuda.memory has it in Python");
}

class Allocator final : public CUDAAllocator {
 public:
  DataPtr allocate(size_t bytes) override { return own()->allocate(bytes); }
  DeleterFnPtr raw_deleter() const override { return own()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    own()->copy_data(to, from, bytes);
  }
  bool initialized() override { return own()->initialized(); }
  void emptyCache(MempoolId_t pool) override { own()->emptyCache(pool); }
  void recordStream(const DataPtr& data, CUDAStream stream) override {
    own()->recordStream(data, stream.unwrap());
  }
  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return own()->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { own()->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { own()->resetPeakStats(device); }

  void* raw_alloc(size_t bytes) override { return own()->raw_allocate(bytes); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    const loom::runtime::StreamRef wanted = loom::glue::stream_of(stream);
    TORCH_CHECK_VALUE(wanted.device >= 0, "raw_alloc_with_stream: ", stream,
                      " is no stream of these devices");
    const int64_t before = loom::runtime::current_stream(wanted.device);
    loom::runtime::set_current_stream(wanted.device, wanted.id);
    void* const memory = own()->raw_allocate(bytes);
    loom::runtime::set_current_stream(wanted.device, before);
    return memory;
  }
  void raw_delete(void* address) override { own()->raw_deallocate(address); }
  void init(int) override {}
  double getMemoryFraction(DeviceIndex device) override {
    return devices().device(device).allocator->memory_fraction();
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    translated([&] { devices().device(device).allocator->set_memory_fraction(fraction); });
  }
  void enable(bool) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(DeviceIndex, size_t*) override { refuse("cacheInfo"); }
  void* getBaseAllocation(void* address, size_t* bytes) override {
    const loom::glue::KernelRange range = loom::glue::allocation_around(reinterpret_cast<uintptr_t>(address));
    TORCH_CHECK_VALUE(range.end != 0, "getBaseAllocation: ", address, " is in no memory of the devices");
    if (bytes != nullptr) *bytes = range.end - range.begin;
    return reinterpret_cast<void*>(range.begin);
  }
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { return {}; }
  SnapshotInfo snapshot(MempoolId_t, bool) override { refuse("snapshot"); }
  void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) override {
    refuse("beginAllocateToPool");
  }
  void endAllocateToPool(DeviceIndex, MempoolId_t) override { refuse("endAllocateToPool"); }
  void releasePool(DeviceIndex, MempoolId_t) override { refuse("releasePool"); }
  ShareableHandle shareIpcHandle(void*) override { refuse("shareIpcHandle"); }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { refuse("getIpcDevPtr"); }
  void recordHistory(bool, CreateContextFn, size_t, RecordContext, bool,
                     const std::vector<std::string>&) override {
    refuse("recordHistory");
  }
  void attachOutOfMemoryObserver(OutOfMemoryObserver) override { refuse("attachOutOfMemoryObserver"); }
  void attachOomRejectionObserver(OomRejectionObserver) override { refuse("attachOomRejectionObserver"); }
  void attachAllocatorTraceTracker(AllocatorTraceTracker) override { refuse("attachAllocatorTraceTracker"); }
  void enablePeerAccess(DeviceIndex, DeviceIndex) override {}
  cudaError_t memcpyAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream,
                          bool) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  }
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override {
    refuse("getCheckpointState");
  }
  CheckpointDelta setCheckpointPoolState(DeviceIndex, std::shared_ptr<AllocatorState>) override {
    refuse("setCheckpointPoolState");
  }
  std::string name() override { return "torch-loom"; }

 private:
  static DeviceAllocator* own() { return static_cast<DeviceAllocator*>(loom::glue::device_allocator()); }
};

Allocator instance;

}  // namespace

std::atomic<CUDAAllocator*> allocator{&instance};

}  // namespace c10::cuda::CUDACachingAllocator
