// Kernels that were compiled from a program's own text: a function in a shared library, submitted like any
// op.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_compiled_kernels(pybind11::module_& m);

}  // namespace loom::glue
