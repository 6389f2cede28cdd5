// The driver seam in Python, as torch_loom._C.driver: for the conformance suite and for whoever writes a
// driver.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::driver {

void bind_driver(pybind11::module_& parent);

}  // namespace loom::driver
