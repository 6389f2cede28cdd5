// Copies between devices of different drivers, of which neither knows the other's memory.
#pragma once

#include <cstddef>

#include "runtime/device.h"

namespace loom::runtime {

// Copies on a stream of `device` where one side is memory of another driver's device that the host cannot
// reach: through memory of the host, complete when this returns. False, and nothing is done, for any other
// copy: memory that the host can reach is pageable memory to `device`'s own driver.
bool copy_between_drivers(const Device& device, driver::Stream stream, void* destination, const void* source,
                          size_t bytes);

}  // namespace loom::runtime
