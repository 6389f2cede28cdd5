// Device memory in torch_loom._C: statistics, the cache, private pools, history and snapshots.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Called by initialize() once the devices are there.
void prepare_memory();
void bind_memory(pybind11::module_& m);
// From now on raw_delete() takes the block.
void note_raw_memory(void* block);
// checkpoint_bindings.cpp
void bind_checkpoints(pybind11::module_& m);
// memory_history_bindings.cpp
void bind_memory_history(pybind11::module_& m);

}  // namespace loom::glue
