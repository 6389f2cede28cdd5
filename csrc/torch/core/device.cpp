#include "torch/core/device.h"

#include <c10/core/DeviceType.h>

#include <algorithm>
#include <cctype>

#include "runtime/worlds.h"

namespace loom::glue {

namespace {
int (*count_peek)() noexcept = nullptr;
}

std::string device_name() { return c10::DeviceTypeName(device_type(), /*lower_case=*/true); }

std::string device_name_upper() {
  std::string name = device_name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

void set_device_count_peek(int (*peek)() noexcept) { count_peek = peek; }

int device_count() noexcept {
  if (runtime::is_initialized()) return runtime::detail::instance.load()->device_count();
  return count_peek == nullptr ? 0 : count_peek();
}

namespace {

const char* hint_of_other_worlds() {
  if (!runtime::has_other_worlds()) return "";
  return runtime::detail::world.load() == 0
             ? "; a dry run that has ended may have had it, and its tensors have no contents"
             : "; a tensor that was made outside of this dry run cannot be used inside";
}

}  // namespace

void check_device_index(int64_t index) {
  const int count = device_count();
  if (index >= 0 && index < count) return;
  // CUDA's type of error, and its number.
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, /*code=*/101,
                              c10::str(device_name_upper(), " error: invalid device ordinal: got ", index,
                                       count == 0 ? ", and there is no device"
                                                  : ", and the devices are 0 … " + std::to_string(count - 1),
                                       hint_of_other_worlds()));
}

bool device_has_context(int64_t index) {
  TORCH_CHECK(index >= 0 && index < device_count(),
              "hasPrimaryContext expects a valid device index, but got device_index=", index);
  return runtime::is_initialized() && !runtime::in_bad_fork() &&
         devices().device(static_cast<int>(index)).is_used();
}

c10::Device resolve_device(const std::optional<c10::Device>& device) {
  devices();
  const int index = device.has_value() && device->has_index() ? device->index() : runtime::current_device();
  check_device_index(index);
  return c10::Device(device_type(), static_cast<c10::DeviceIndex>(index));
}

}  // namespace loom::glue
