#include "torch/bindings/clock_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "runtime/simulated_clock.h"
#include "torch/bindings/tape_bindings.h"
#include "torch/core/device.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

namespace simulated = runtime::simulated;

// Calls Python in the thread that issues a command, between whatever else it is about. What Python raises
// leaves the call that issued the command.
template <typename T, typename... Arguments>
T ask(const py::object& callback, T if_ended, const Arguments&... arguments) {
  if (Py_IsInitialized() == 0) return if_ended;
  const py::gil_scoped_acquire gil;
  const py::error_scope pending;
  try {
    return callback(arguments()...).template cast<T>();
  } catch (py::error_already_set& error) {
    error.restore();
    python_error kept;
    kept.persist();
    throw kept;
  }
}

void simulate_time(py::object describe, py::object kernel_ns, py::object move_ns,
                   std::vector<std::string> attributes) {
  // Leaked: threads that end after the interpreter may hold what refers to them.
  auto* const callbacks =
      new std::array<py::object, 3>{std::move(describe), std::move(kernel_ns), std::move(move_ns)};
  simulated::Estimator estimator;
  estimator.describe = [callbacks](int device) {
    const auto [chip, issue_ns] =
        ask<std::pair<uint32_t, int64_t>>((*callbacks)[0], {0, 0}, [&] { return py::int_(device); });
    return simulated::DeviceFigures{chip, issue_ns};
  };
  estimator.kernel_ns = [callbacks](int device, const runtime::Command& command) {
    return ask<int64_t>((*callbacks)[1], 0, [&] { return py::int_(device); },
                        [&] { return py::str(command.name); },
                        [&] { return operands_to_python(command.inputs); },
                        [&] { return operands_to_python(command.outputs); },
                        [&] { return attributes_to_python(command.attributes); });
  };
  estimator.move_ns = [callbacks](int device, simulated::Move move, size_t bytes) {
    return ask<int64_t>((*callbacks)[2], 0, [&] { return py::int_(device); },
                        [&] { return py::int_(static_cast<int>(move)); }, [&] { return py::int_(bytes); });
  };
  estimator.attributes = std::move(attributes);
  const py::gil_scoped_release no_gil;
  translated([&] { simulated::turn_on(estimator); });
}

}  // namespace

void bind_clock(py::module_& m) {
  m.def("simulate_time", torch::wrap_pybind_function(&simulate_time), py::arg("describe"),
        py::arg("kernel_ns"), py::arg("move_ns"), py::arg("attributes"));
  m.def("stop_simulating_time", torch::wrap_pybind_function([] {
          const py::gil_scoped_release no_gil;
          translated([] { simulated::turn_off(); });
        }));
  m.def("is_time_simulated", [] { return simulated::is_on(); });
  m.def("clock_ns",
        [](int device) { return device < 0 ? simulated::host_ns() : simulated::device_ns(device); });
}

}  // namespace loom::glue
