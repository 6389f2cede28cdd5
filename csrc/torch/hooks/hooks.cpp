// What PyTorch asks of an accelerator outside of ops: is it there, its generators, pinned memory.
#include "torch/core/device.h"
#include "torch/core/extension_points.h"
#include "torch/core/generator.h"
#include "torch/hooks/register.h"
#include "torch/memory/host_allocator.h"
#include "torch/memory/resize.h"

namespace loom::glue {

namespace {

template <typename Base>
struct Hooks final : Base {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return device_has_context(index); }
  void init() const override { devices(); }

  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_device_index(index);
    runtime::set_current_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(runtime::current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    setCurrentDevice(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? c10::DeviceIndex{-1} : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void* data) const override {
    const int index = devices().device_of(data);
    TORCH_CHECK(index >= 0, "The specified pointer resides on host memory and is not registered with any ",
                device_name_upper(), " device: ", data);
    return {device_type(), static_cast<c10::DeviceIndex>(index)};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index < 0 ? runtime::current_device() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    const c10::Device device =
        index < 0 ? resolve_device(std::nullopt) : resolve_device(c10::Device(device_type(), index));
    return at::make_generator<LoomGenerator>(device.index());
  }
  void resize(const c10::Storage& storage, size_t bytes) const override { resize_storage(storage, bytes); }
};

}  // namespace

void register_hooks() { register_hooks_of<Hooks>(); }

}  // namespace loom::glue
