// Device memory as PyTorch's allocators see it.
#pragma once

#include <c10/core/Allocator.h>

namespace loom::glue {

// The allocator of loom storages (a c10::DeviceAllocator).
c10::Allocator* device_allocator();

// Memory of a device for its current stream, and back. It is freed by its address alone, as the engine knows
// it or as the user does, so that pointer and context of a DataPtr are the same ("simple").
void* take_device_memory(int device, size_t bytes);
void free_device_memory(void* address);

}  // namespace loom::glue
