// Ranges and marks of a program, as torch.loom.nvtx has them.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Binds them, and torch.loom.profiler's gate.
void bind_nvtx(pybind11::module_& m);

}  // namespace loom::glue
