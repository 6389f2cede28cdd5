// What is read of pages that processes publish, from pages and streams that a test makes up.
#include <pybind11/stl.h>

#include "telemetry/activity_reader.h"
#include "testing/bindings.h"

namespace py = pybind11;

namespace loom::testing {

void bind_activity(py::module_& parent) {
  py::module_ m = parent.def_submodule("activity");
  py::class_<telemetry::Process>(m, "Process")
      .def_readonly("pid", &telemetry::Process::pid)
      .def_readonly("physical", &telemetry::Process::physical)
      .def_readonly("memory_bytes", &telemetry::Process::memory_bytes)
      .def_property_readonly("chip",
                             [](const telemetry::Process& process) { return py::bytes(process.chip); })
      .def("busy_share", [](const telemetry::Process& process, uint64_t now) {
        const telemetry::Busy busy = telemetry::busy_share({process}, now);
        return py::make_tuple(busy.kernels, busy.kernels_or_copies);
      });
  m.def("parse", [](const std::string& page, int pid) { return telemetry::parse(page, pid); });
  m.def("busy_share",
        [](const std::vector<telemetry::Stream>& streams, int shift, uint64_t now, uint64_t period) {
          std::vector<const telemetry::Stream*> pointers;
          for (const telemetry::Stream& stream : streams) pointers.push_back(&stream);
          const telemetry::Busy busy = telemetry::busy_share(pointers, shift, now, period);
          return py::make_tuple(busy.kernels, busy.kernels_or_copies);
        });
}

}  // namespace loom::testing
