// PyTorch's view of the runtime's devices: indices checked with PyTorch's messages, names.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <string>

#include "runtime/commands.h"
#include "runtime/runtime.h"
#include "torch/core/errors.h"

namespace loom::glue {

constexpr c10::DeviceType kLoom = c10::DeviceType::PrivateUse1;

// The user's name of the device type ("loom"), and the same in capitals for messages.
std::string device_name();
std::string device_name_upper();

// The devices; initialises at first use, with PyTorch's exception types.
inline runtime::Runtime& devices() {
  if (runtime::Runtime* ready = runtime::detail::instance.load(std::memory_order_acquire);
      ready != nullptr && !runtime::in_bad_fork()) [[likely]] {
    return *ready;
  }
  return translated([]() -> runtime::Runtime& { return runtime::get(); });
}

// How many devices there are or would be; never throws and never initialises.
int device_count() noexcept;
void set_device_count_peek(int (*peek)() noexcept);

// Checks an index, with CUDA's wording ("invalid device ordinal") and the allowed range.
void check_device_index(int64_t index);
// The device of an optional device argument: the current one if it has no index.
c10::Device resolve_device(const std::optional<c10::Device>& device);

// Makes a device current for this thread, for the life of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) : previous_(runtime::current_device()) {
    runtime::set_current_device(index);
  }
  ~CurrentDevice() { runtime::set_current_device(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const int previous_;
};

inline driver::Stream current_stream(int device) {
  return translated([&] { return devices().stream(device, runtime::current_stream(device)); });
}

// Runs `work` as a kernel in stream order, through the driver. A driver without arithmetic is given the
// command while the host infers the result's metadata: `work` then runs here, on tensors that have no data.
// `work` lives on the caller's stack, so it runs in place.
template <typename F>
void run_kernel(int device, const char* name, F&& work) {
  runtime::Runtime& runtime = devices();
  const driver::Stream stream = current_stream(device);
  if (!runtime.runs_kernels()) {
    work();
    translated([&] { runtime.driver().submit(stream, {name, [](void*) {}, nullptr, nullptr}); });
    return;
  }
  const auto run = [](void* context) { (*static_cast<std::remove_reference_t<F>*>(context))(); };
  translated([&] { runtime.driver().submit(stream, {name, run, nullptr, &work, /*in_place=*/true}); });
}

}  // namespace loom::glue
