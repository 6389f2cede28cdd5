#pragma once

namespace loom::glue {

// Puts an allocator in front of the CPU's that asks the output_allocations of the running op
// (output_allocations.h). Called once, when the devices are initialised.
void install_engine_allocator();

}  // namespace loom::glue
