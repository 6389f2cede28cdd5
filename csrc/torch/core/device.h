// PyTorch's view of the runtime's devices: indices checked with PyTorch's messages, names.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <string>

#include "runtime/commands.h"
#include "runtime/runtime.h"
#include "torch/core/device_type.h"
#include "torch/core/errors.h"

namespace loom::glue {

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
// Whether this process has used the device: CUDA makes a context for it then.
bool device_has_context(int64_t index);
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

// Whether the chip of a device has a kernel for what is several ops without it.
inline bool chip_has(runtime::FusedKernel kernel, int device) {
  return devices().device(device).chip().has(kernel);
}

}  // namespace loom::glue
