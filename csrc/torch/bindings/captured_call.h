// A captured graph as a function: calls whose operands are like those of its capture.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_captured_calls(pybind11::module_& m);

}  // namespace loom::glue
