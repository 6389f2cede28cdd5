// Devices, streams and events as c10 sees them: torch.Stream, torch.Event, DeviceGuard, the autograd engine.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>

#include "runtime/worlds.h"
#include "torch/core/device.h"
#include "torch/hooks/priorities.h"
#include "torch/hooks/register.h"
#include "torch/memory/allocator.h"

namespace loom::glue {

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return device_type(); }

  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    if (device.index() != previous.index()) setDevice(device);
    return previous;
  }
  Device getDevice() const override {
    return {device_type(), static_cast<DeviceIndex>(runtime::current_device())};
  }
  void setDevice(Device device) const override {
    TORCH_CHECK_VALUE(device.type() == device_type(), "expected a ", device_name(), " device, got ", device);
    check_device_index(device.index());
    runtime::set_current_device(device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) runtime::set_current_device(device.index());
  }

  Stream getStream(Device device) const override {
    // Autograd asks for the stream of every tensor, and an exception here would end the process. So answer
    // also for a device of another world; anything done on it is refused later.
    if (runtime::has_other_worlds() && device.index() >= device_count()) [[unlikely]] {
      return stream_of(device.index(), 0);
    }
    const int index = index_of(device);
    return stream_of(index, runtime::current_stream(index));
  }
  Stream getDefaultStream(Device device) const override { return stream_of(index_of(device), 0); }
  Stream getNewStream(Device device, int priority) const override {
    const int index = resolve_device(device).index();
    return stream_of(index, translated([&] {
                       return devices().device(index).new_stream(std::max(priority, highest_priority()));
                     }));
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? highest_priority() : 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const int index = stream.device_index();
    const Stream previous = getStream(stream.device());
    driver_stream(stream);  // throws for a stream that does not exist
    runtime::set_current_stream(index, stream.id());
    return previous;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return driver_stream(stream); }

  void record(void** event, const Stream& stream, const DeviceIndex device_index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "Event device index ",
                static_cast<int>(device_index), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()), ".");
    translated([&] {
      if (*event == nullptr) {
        *event = runtime::create_event(stream.device_index(), {flag == c10::EventFlag::BACKEND_DEFAULT});
      }
      runtime::record_event(static_cast<driver::Event>(*event), reference(stream));
    });
  }
  void destroyEvent(void* event, const DeviceIndex /*device*/) const noexcept override {
    if (event == nullptr || runtime::in_bad_fork()) return;
    runtime::destroy_event(static_cast<driver::Event>(event));
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    translated([&] { runtime::wait_event(reference(stream), static_cast<driver::Event>(event)); });
  }
  bool queryEvent(void* event) const override {
    return event == nullptr ||
           translated([&] { return runtime::query_event(static_cast<driver::Event>(event)); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    translated([&] { runtime::synchronize_event(static_cast<driver::Event>(event)); });
  }
  double elapsedTime(void* start, void* end, const DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    constexpr double kNanosecondsPerMillisecond = 1e6;
    return translated([&] {
      return static_cast<double>(
                 runtime::elapsed_ns(static_cast<driver::Event>(start), static_cast<driver::Event>(end))) /
             kNanosecondsPerMillisecond;
    });
  }

  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(device_count()); }
  // The dtypes that can be made and converted into each other: chips differ in speed and not in these.
  c10::DeviceCapability getDeviceCapability(Device device) const override {
    check_device_index(device.index());
    c10::DeviceCapability capability;
    auto& has = capability.capability_data.supported_scalar_types;
    capability.capability_data.capability_bits = 0;
#define LOOM_HAS(type, name) has.has_##name = 1;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(LOOM_HAS)
#undef LOOM_HAS
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    return capability;
  }

  bool queryStream(const Stream& stream) const override {
    return translated([&] { return runtime::query_stream(reference(stream)); });
  }
  void synchronizeStream(const Stream& stream) const override {
    translated([&] { runtime::synchronize_stream(reference(stream)); });
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    check_device_index(index);
    translated([&] { runtime::synchronize_device(index); });
  }
  bool isStreamCapturing(const Stream& stream) const override {
    return runtime::is_initialized() && translated([&] { return runtime::is_captured(reference(stream)); });
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(device_allocator())->recordStream(data, stream);
  }

 private:
  static int index_of(Device device) {
    if (!device.has_index()) return runtime::current_device();
    check_device_index(device.index());
    return device.index();
  }
  static Stream stream_of(int device, int64_t id) {
    return Stream(Stream::UNSAFE, Device(device_type(), static_cast<DeviceIndex>(device)), id);
  }
  static runtime::StreamRef reference(const Stream& stream) { return {stream.device_index(), stream.id()}; }
  static driver::Stream driver_stream(const Stream& stream) {
    return translated([&] { return devices().stream(stream.device_index(), stream.id()); });
  }
};

}  // namespace

void register_guard() {
  // PyTorch keeps the guard for the life of the process.
  const c10::impl::DeviceGuardImplRegistrar registrar(device_type(), new GuardImpl);
}

}  // namespace loom::glue
