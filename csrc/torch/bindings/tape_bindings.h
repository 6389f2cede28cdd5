// The tape in Python, as torch_loom._C.TapeReader: a callable hears of what is launched, before it is.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_tape(pybind11::module_& m);

}  // namespace loom::glue
