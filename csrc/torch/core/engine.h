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

// The device type that lent memory is wrapped as.
c10::DeviceType engine_type();
// Keys that the engine's kernels must not meet again: gradients, casts.
c10::DispatchKeySet excluded_keys();
// The keys under which the engine's kernels are found.
c10::DispatchKeySet engine_keys();

}  // namespace loom::glue
