#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "torch/bindings/bindings.h"
#include "torch/ops/fallback.h"
#include "torch/profiler/op_watch.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// Leaked, so that no Python object is released after the interpreter has gone.
py::object& fallback_callback() {
  static auto* callback = new py::object;
  return *callback;
}

void notify_fallback(const std::string& op, const char* dtype, const std::vector<std::string>& operands,
                     int device) {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  if (!fallback_callback()) return;
  try {
    fallback_callback()(op, dtype == nullptr ? py::object(py::none()) : py::object(py::str(dtype)), operands,
                        device);
  } catch (py::error_already_set& error) {
    // PyTorch carries its own class between threads, and gives it back to Python as it is.
    error.restore();
    python_error kept;
    kept.persist();
    throw kept;
  }
}

py::dict fallback_counts() {
  py::dict out;
  for (const fallback::Count& count : fallback::counts()) {
    const py::object dtype = count.dtype.empty() ? py::object(py::none()) : py::object(py::str(count.dtype));
    out[py::make_tuple(count.op, dtype)] = count.count;
  }
  return out;
}

py::tuple current_op() {
  using op_watch::Direction;
  const op_watch::OpInProgress op = op_watch::current();
  py::list operands;
  for (const auto& [dtype, num_dims] : op.operands) {
    operands.append(py::make_tuple(c10::getDtypeNames(dtype).first, num_dims));
  }
  const char* direction = op.direction == Direction::kWithin     ? "within"
                          : op.direction == Direction::kToHost   ? "to_host"
                          : op.direction == Direction::kToDevice ? "to_device"
                                                                 : "";
  return py::make_tuple(op.names, op.is_cast_asked, direction, op.non_blocking, op.is_pinned, op.bytes,
                        op.departure, op.origin, op.origin_bytes, operands);
}

}  // namespace

void bind_explain(py::module_& m) {
  fallback::set_notifier(&notify_fallback);
  m.def("set_fallback_notifier", [](py::object callback) { fallback_callback() = std::move(callback); });
  m.def("fallback_counts", &fallback_counts);
  m.def("fallback_reason", &fallback::reason_of, py::arg("chip"), py::arg("name"), py::arg("overload"),
        py::arg("dtypes"));
  m.def("reset_fallback_counts", &fallback::reset);
  m.def("start_op_watch", &op_watch::start);
  m.def("stop_op_watch", &op_watch::stop);
  m.def("current_op", &current_op);
}

}  // namespace loom::glue
