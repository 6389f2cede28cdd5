#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// Adds to torch_loom._C what torch_loom/device/streams needs beyond torch.Stream and torch.Event.
void bind_streams(pybind11::module_& m);

}  // namespace loom::glue
