#include "torch/implicit_sync.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <string>

#include "torch/device.h"
#include "torch/python_line.h"

namespace py = pybind11;

namespace loom::glue {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kDefault};

namespace {

// torch_loom.errors.ImplicitSynchronizationError. Leaked, so that it is not released after the interpreter.
py::object& error_class() {
  static auto* kept = new py::object;
  return *kept;
}

[[noreturn]] void raise(const std::string& message) {
  const py::gil_scoped_acquire gil;
  PyErr_SetString(error_class().ptr(), message.c_str());
  python_error error;
  error.persist();
  throw std::move(error);
}

}  // namespace

void report_implicit_sync(const char* op_name) {
  const std::string line = python_line();
  const std::string message = "called a synchronizing " + device_name_upper() + " operation: " + op_name +
                              " makes the host wait for the device" + (line.empty() ? "" : " (" + line + ")");
  if (sync_debug_mode.load(std::memory_order_relaxed) == SyncDebugMode::kError) raise(message);
  TORCH_WARN(message);
}

void bind_implicit_sync(py::module_& m) {
  m.def("set_sync_debug_mode", [](int mode, py::object error) {
    error_class() = std::move(error);
    sync_debug_mode.store(static_cast<SyncDebugMode>(mode));
  });
  m.def("sync_debug_mode", [] { return static_cast<int>(sync_debug_mode.load()); });
}

}  // namespace loom::glue
