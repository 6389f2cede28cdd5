// What torch_loom._C_testing has.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::testing {

// Calls without Python's lock.
template <typename F>
auto unlocked(F&& call) -> decltype(call()) {
  const pybind11::gil_scoped_release no_gil;
  return call();
}

// The driver contract, method by method.
void bind_driver(pybind11::module_& parent);
// Time that a test sets.
void bind_clock(pybind11::module_& parent);
// What is read of published activity.
void bind_activity(pybind11::module_& parent);
// An allocator of its own.
void bind_allocator(pybind11::module_& parent);

}  // namespace loom::testing
