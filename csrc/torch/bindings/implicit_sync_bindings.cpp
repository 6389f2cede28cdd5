#include <torch/csrc/Exceptions.h>

#include <string>

#include "torch/bindings/bindings.h"
#include "torch/dispatch/implicit_sync.h"

namespace py = pybind11;

namespace loom::glue {

void bind_implicit_sync(py::module_& m) {
  m.def("set_sync_debug_mode", [](int mode) { set_sync_debug_mode(static_cast<SyncDebugMode>(mode)); });
  m.def("sync_debug_mode", [] { return static_cast<int>(sync_debug_mode.load()); });
}

}  // namespace loom::glue
