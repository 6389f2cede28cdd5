#pragma once

#include <torch/csrc/utils/pybind.h>

namespace loom::glue {

// What the op table says of an op, and where inferred outputs came from.
void bind_ops(pybind11::module_& m);

}  // namespace loom::glue
