#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

// The class Graph and what goes with it, as torch_loom/_C.pyi declares them.
void bind_graphs(pybind11::module_& m);
// tree_bindings.cpp
void bind_trees(pybind11::module_& m);

}  // namespace loom::glue
