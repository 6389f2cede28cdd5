// Whether the host has the memory that an op would touch first.
#pragma once

#include <cstddef>

#include "util/host_memory.h"

namespace loom::glue {

// Throws OutOfMemoryError when the host is too short of memory for `bytes` at `data` to be written, by a
// kernel that runs. For writes of host_memory::kLargeBytes and more.
void check_host_room(const void* data, size_t bytes);
// Throws it.
[[noreturn]] void throw_short_of_host(size_t bytes);

}  // namespace loom::glue
