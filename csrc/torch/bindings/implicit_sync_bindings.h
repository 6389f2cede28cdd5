// torch.loom.set_sync_debug_mode in torch_loom._C.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_implicit_sync(pybind11::module_& m);

}  // namespace loom::glue
