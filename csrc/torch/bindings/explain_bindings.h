// In Python: the ops in progress, and what fell back.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_explain(pybind11::module_& m);

}  // namespace loom::glue
