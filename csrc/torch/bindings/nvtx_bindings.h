#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Adds to torch_loom._C what torch_loom/device/nvtx.py needs, and torch.loom.profiler's gate.
void bind_nvtx(pybind11::module_& m);

}  // namespace loom::glue
