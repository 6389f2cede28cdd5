#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Adds to torch_loom._C what torch_loom/device/_core/clock.py needs: simulated time, whose costs Python
// knows.
void bind_clock(pybind11::module_& m);

}  // namespace loom::glue
