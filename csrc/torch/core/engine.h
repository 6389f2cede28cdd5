// The engine: the PyTorch device type whose kernels do the arithmetic, and the dispatch keys of both sides.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include "torch/core/device.h"

namespace loom::glue {

// The keys of a tensor of the device.
inline constexpr c10::DispatchKeySet kOwnKeys(c10::DispatchKey::PrivateUse1);
// Bits of a tensor that change how its memory reads. Everything else in a key set says where it lives.
inline constexpr c10::DispatchKeySet kMathBits = c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
                                                 c10::DispatchKeySet(c10::DispatchKey::Negative) |
                                                 c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);

inline bool is_loom(const at::Tensor& tensor) { return tensor.device().type() == kLoom; }

// The device type that a driver names as its engine. Throws when PyTorch has none of that name.
c10::DeviceType parse_engine(const driver::Info& info);
// Notes the engine in a device that is made.
void prepare_engine(runtime::Device& device);
// The device of one of our tensors, which belongs to the devices that the program sees (memory/worlds.h).
inline runtime::Device& device_of(const at::Tensor& tensor) { return devices().device(tensor.device().index()); }
// The device type that lent memory of a device is wrapped as.
inline c10::DeviceType engine_type(const runtime::Device& device) {
  return static_cast<c10::DeviceType>(device.engine().type);
}
// Keys that the engine's kernels must not meet again: gradients, casts.
c10::DispatchKeySet excluded_keys();
// The keys under which the kernels of a device's engine are found.
inline c10::DispatchKeySet engine_keys(const runtime::Device& device) {
  return {c10::DispatchKeySet::RAW, device.engine().keys};
}

}  // namespace loom::glue
