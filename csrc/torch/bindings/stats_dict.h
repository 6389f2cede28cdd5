// Statistics as Python's dictionaries, for all bindings that show them.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/memory/allocator_stats.h"

namespace loom::glue {

// Flat, in the order in which they are shown: the short names (allocated, reserved, active, cached, in
// bytes), then CUDA's.
pybind11::dict stats_dict(const runtime::AllocatorStats& stats);

}  // namespace loom::glue
