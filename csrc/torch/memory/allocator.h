// Device memory as PyTorch's allocators see it.
#pragma once

#include <c10/core/Allocator.h>

#include "torch/core/device_memory.h"

namespace loom::glue {

// The allocator of loom storages (a c10::DeviceAllocator).
c10::Allocator* device_allocator();

// What is called before free memory is counted or given back, which are no commands. None at first.
void set_memory_check(void (*check)());
void check_memory();

}  // namespace loom::glue
