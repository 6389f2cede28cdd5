// Device memory as PyTorch's allocators see it.
#pragma once

#include <c10/core/Allocator.h>

#include "torch/core/device_memory.h"

namespace loom::glue {

// The allocator of loom storages (a c10::DeviceAllocator).
c10::Allocator* device_allocator();

}  // namespace loom::glue
