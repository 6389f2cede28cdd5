#include "torch/core/engine.h"

#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

namespace loom::glue {

namespace {

using c10::DispatchKeySet;

// Kernels of the engine must not record gradients, cast, or be seen by modes: the op has been through all
// that.
const DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

}  // namespace

c10::DeviceType parse_engine(const driver::Info& info) {
  try {
    return c10::Device(info.engine).type();
  } catch (const c10::Error&) {
    TORCH_CHECK(false, "the driver '", info.name, "' names the engine '", info.engine,
                "', which is no device type of this PyTorch: Info::engine must be one, such as cpu or meta");
  }
}

void prepare_engine(runtime::Device& device) {
  const c10::DeviceType type = parse_engine(device.driver().info());
  const DispatchKeySet keys(c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type)));
  device.set_engine({static_cast<int8_t>(type), keys.raw_repr()});
}

DispatchKeySet excluded_keys() { return kExcluded; }

}  // namespace loom::glue
