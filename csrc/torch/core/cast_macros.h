// PyTorch's macros that list the ops which autocast casts, for the type of backends outside of its tree;
// CUDA's type has kernels of PyTorch's own.
#pragma once

#include <ATen/autocast_mode.h>

#include "torch/core/device_type.h"

#define LOOM_CAST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__)
#define LOOM_CAST_REDISPATCHED KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE

namespace loom::glue {

inline bool has_own_casts() { return device_type() == c10::DeviceType::PrivateUse1; }

}  // namespace loom::glue
