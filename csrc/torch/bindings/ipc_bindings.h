// Storages and events of other processes in torch_loom._C.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_ipc(pybind11::module_& m);

}  // namespace loom::glue
