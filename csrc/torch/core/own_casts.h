// Whether the device needs kernels of its own for torch.autocast: CUDA's type has those of PyTorch.
#pragma once

#include "torch/core/device_type.h"

namespace loom::glue {

inline bool has_own_casts() { return device_type() == c10::DeviceType::PrivateUse1; }

}  // namespace loom::glue
