// The tape in Python, as torch_loom._C.TapeReader: calls a function with each command before it is launched.
#pragma once

#include <pybind11/pybind11.h>

#include <span>

#include "runtime/tape.h"

namespace loom::glue {

// Tuples (address, sizes, strides, item_bytes, is_written, dtype), and a dict of attributes by name.
pybind11::tuple operands_to_python(std::span<const runtime::Operand> operands);
pybind11::dict attributes_to_python(std::span<const runtime::Attribute> attributes);

}  // namespace loom::glue
