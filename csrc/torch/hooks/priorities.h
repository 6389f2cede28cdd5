// The priorities of streams: 0 and less, which is more urgent.
#pragma once

#include "runtime/device.h"
#include "torch/core/device_type.h"

namespace loom::glue {

// CUDA's under its name. The vendor of the name rbln has two priorities.
inline int highest_priority() {
  return device_type() == c10::DeviceType::CUDA ? runtime::kHighestPriority : -1;
}

}  // namespace loom::glue
