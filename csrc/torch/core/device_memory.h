// Memory of the devices, below PyTorch's allocators.
#pragma once

#include <cstddef>

#include "runtime/device.h"

namespace loom::glue {

// Memory of a device for its current stream, and back. It is freed by its address alone, as the engine knows
// it or as the user does, so that pointer and context of a DataPtr are the same ("simple").
void* take_device_memory(const runtime::Device& device, size_t bytes);
void free_device_memory(void* address);

}  // namespace loom::glue
