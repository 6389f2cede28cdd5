// Device memory in torch_loom._C: statistics, the cache, private pools, history and snapshots.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Called by initialize() once the devices are there.
void prepare_memory();
void bind_memory(pybind11::module_& m);
// memory_history.cpp
void bind_memory_history(pybind11::module_& m);
// allocator_bindings.cpp: an allocator of its own, for tests and benchmarks.
void bind_allocator(pybind11::module_& m);

}  // namespace loom::glue
