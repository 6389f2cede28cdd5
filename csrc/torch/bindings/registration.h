#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_registration(pybind11::module_& m);

}  // namespace loom::glue
