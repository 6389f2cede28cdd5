#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/plan_recorder.h"
#include "runtime/simulated_clock.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/bindings/tape_bindings.h"
#include "torch/core/device.h"
#include "torch/inference/no_values.h"
#include "torch/memory/lazy.h"
#include "torch/memory/workspaces.h"

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
  estimator.kernel_ns = [callbacks](uint32_t chip, const char* name, const runtime::KernelRecord& kernel,
                                    std::span<const runtime::Operand> outputs) {
    return ask<int64_t>((*callbacks)[1], 0, [&] { return py::int_(chip); }, [&] { return py::str(name); },
                        [&] { return operands_to_python(kernel.inputs); },
                        [&] { return operands_to_python(outputs); },
                        [&] { return attributes_to_python(kernel.attributes); });
  };
  estimator.move_ns = [callbacks](uint32_t chip, simulated::Move move, size_t bytes) {
    return ask<int64_t>((*callbacks)[2], 0, [&] { return py::int_(chip); },
                        [&] { return py::int_(static_cast<int>(move)); }, [&] { return py::int_(bytes); });
  };
  estimator.attributes = std::move(attributes);
  const py::gil_scoped_release no_gil;
  translated([&] { simulated::turn_on(estimator); });
}

// A recorder that is attached by name.
class PlanRecorder {
 public:
  // Of each device: (bytes, bytes of products with a bias, multiprocessors, threads of a multiprocessor).
  using Figures = std::tuple<size_t, size_t, int64_t, int64_t>;

  PlanRecorder(py::object at_peak, const std::vector<Figures>& figures) {
    std::vector<workspaces::Sizes> sizes;
    std::vector<runtime::ReductionUnits> units;
    for (const auto& [bytes, linear_bytes, num_cores, threads] : figures) {
      sizes.push_back({bytes, linear_bytes});
      units.push_back({num_cores, threads});
    }
    workspaces::provide(world_, std::move(sizes));
    auto* const callback = new py::object(std::move(at_peak));  // leaked, as above
    recorder_ = std::make_shared<runtime::PlanRecorder>(
        [callback](int device) {
          if (Py_IsInitialized() == 0) return;
          const py::gil_scoped_acquire gil;
          const py::error_scope pending;
          try {
            (*callback)(device);
          } catch (py::error_already_set& error) {
            error.discard_as_unraisable("the plan of a dry run");
          }
        },
        std::move(units));
  }
  void attach() {
    const py::gil_scoped_release no_gil;
    translated([&] {
      simulated::settle();
      runtime::tape::attach(recorder_);
    });
  }
  void detach() {
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::detach(recorder_); });
    workspaces::end(world_);
  }
  size_t position() const { return recorder_->position(); }
  // Of a tensor's device memory; 0: it has none, or takes it where it is first used.
  uintptr_t address(const at::Tensor& tensor) const {
    if (!tensor.has_storage() || is_unmaterialised(tensor)) return 0;
    return reinterpret_cast<uintptr_t>(tensor.storage().data());
  }
  // (memory, spans, totals): bytes of the two structs one after the other, and (name, family, calls, ns).
  py::tuple kept() const {
    const runtime::PlanRecorder::Kept kept = recorder_->kept();
    const auto bytes_of = [](const auto& values) {
      return py::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    py::list totals;
    for (const auto& total : kept.totals) {
      totals.append(py::make_tuple(total.name, total.family, total.calls, total.nanoseconds));
    }
    return py::make_tuple(bytes_of(kept.memory), bytes_of(kept.spans), totals);
  }

 private:
  runtime::Runtime& world_ = devices();  // that of the dry run
  std::shared_ptr<runtime::PlanRecorder> recorder_;
};

}  // namespace

void bind_clock(py::module_& m) {
  m.def("simulate_time", guarded(&simulate_time), py::arg("describe"), py::arg("kernel_ns"),
        py::arg("move_ns"), py::arg("attributes"));
  m.def("take_value_reads", guarded(&take_value_reads));
  m.def("limit_value_reads", guarded(&limit_value_reads), py::arg("limit"));
  m.def("stop_simulating_time", guarded([] {
          const py::gil_scoped_release no_gil;
          translated([] { simulated::turn_off(); });
        }));
  py::class_<PlanRecorder>(m, "PlanRecorder")
      .def(py::init<py::object, const std::vector<PlanRecorder::Figures>&>(), py::arg("at_peak"),
           py::arg("figures"))
      .def("attach", guarded(&PlanRecorder::attach))
      .def("detach", guarded(&PlanRecorder::detach))
      .def("position", &PlanRecorder::position)
      .def("address", guarded(&PlanRecorder::address))
      .def("kept", &PlanRecorder::kept);
  m.def("is_time_simulated", [] { return simulated::is_on(); });
  m.def("clock_ns",
        guarded([](int device) { return device < 0 ? simulated::host_ns() : simulated::device_ns(device); }));
}

}  // namespace loom::glue
