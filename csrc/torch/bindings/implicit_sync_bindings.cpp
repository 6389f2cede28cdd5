#include <torch/csrc/Exceptions.h>

#include <string>

#include "torch/bindings/bindings.h"
#include "torch/dispatch/implicit_sync.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// torch_loom.errors.ImplicitSynchronizationError. Leaked, so that it is not released after the interpreter.
py::object& error_class() {
  static auto* kept = new py::object;
  return *kept;
}

void raise(const std::string& message) {
  const py::gil_scoped_acquire gil;
  PyErr_SetString(error_class().ptr(), message.c_str());
  python_error error;
  error.persist();
  throw std::move(error);
}

}  // namespace

void bind_implicit_sync(py::module_& m) {
  set_implicit_sync_error(&raise);
  m.def("set_sync_debug_mode", [](int mode, py::object error) {
    error_class() = std::move(error);
    set_sync_debug_mode(static_cast<SyncDebugMode>(mode));
  });
  m.def("sync_debug_mode", [] { return static_cast<int>(sync_debug_mode.load()); });
}

}  // namespace loom::glue
