#include "torch/core/engine.h"

#include <c10/core/DeviceType.h>

namespace loom::glue {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Kernels of the engine must not record gradients, cast, or be seen by modes: the op has been through all
// that.
const DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

}  // namespace

c10::DeviceType engine_type() {
  return devices().driver().info().engine == driver::Engine::kMeta ? c10::DeviceType::Meta
                                                                   : c10::DeviceType::CPU;
}

DispatchKeySet excluded_keys() { return kExcluded; }

DispatchKeySet engine_keys() {
  static const DispatchKeySet keys(engine_type() == c10::kMeta ? DispatchKey::Meta : DispatchKey::CPU);
  return keys;
}

}  // namespace loom::glue
