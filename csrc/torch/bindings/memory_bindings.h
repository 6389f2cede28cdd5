// Device memory in torch_loom._C: statistics, the cache, private pools, history and snapshots.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Called by initialize() once the devices are there.
void prepare_memory();
// From now on raw_delete() takes the block.
void note_raw_memory(void* block);
}  // namespace loom::glue
