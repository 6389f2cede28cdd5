// Device memory as PyTorch's allocators see it.
#pragma once

#include <c10/core/Allocator.h>

namespace loom::glue {

// The allocator of loom storages (a c10::DeviceAllocator).
c10::Allocator* device_allocator();

// While an op borrows (lend.h), the engine's allocations of this thread are born on this device; −1
// otherwise.
extern thread_local int birth_device;

// Puts our allocator in front of the CPU's, so that the results of borrowed kernels are born in device
// memory. Called once, when the devices are initialised.
void install_engine_allocator();

}  // namespace loom::glue
