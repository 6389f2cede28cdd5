#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/dispatch/graph.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

at::GraphCaptureMode mode_called(const std::string& name) {
  if (name == "global") return at::GraphCaptureMode::Global;
  if (name == "thread_local") return at::GraphCaptureMode::ThreadLocal;
  if (name == "relaxed") return at::GraphCaptureMode::Relaxed;
  TORCH_CHECK(false, "capture_error_mode must be \"global\", \"thread_local\" or \"relaxed\", got \"", name,
              "\"");
}

void capture_begin(LoomGraph& graph, std::optional<at::MempoolId_t> pool, const std::string& mode) {
  const at::GraphCaptureMode checked = mode_called(mode);
  const py::gil_scoped_release no_gil;
  graph.capture_begin(pool.value_or(at::MempoolId_t{0, 0}), checked);
}

bool is_current_stream_capturing() {
  return runtime::is_initialized() && runtime::capture::is_underway() &&
         runtime::is_captured(runtime::current_stream_of(runtime::current_device()));
}

}  // namespace

void bind_graphs(py::module_& m) {
  py::class_<LoomGraph>(m, "Graph")
      .def(py::init(
               [](bool keep_graph) { return std::make_unique<LoomGraph>(at::GraphImplArgs{keep_graph}); }),
           py::arg("keep_graph") = false)
      .def("capture_begin", guarded(capture_begin), py::arg("pool") = py::none(),
           py::arg("capture_error_mode") = "global")
      .def("capture_end", torch::wrap_pybind_function_no_gil(&LoomGraph::capture_end))
      .def("instantiate", torch::wrap_pybind_function_no_gil(&LoomGraph::instantiate))
      .def("replay", torch::wrap_pybind_function_no_gil(&LoomGraph::replay))
      .def("reset", torch::wrap_pybind_function_no_gil(&LoomGraph::reset))
      .def("pool", torch::wrap_pybind_function_no_gil(&LoomGraph::pool))
      .def("enable_debug_mode", torch::wrap_pybind_function_no_gil(&LoomGraph::enable_debug_mode))
      .def("debug_dump", torch::wrap_pybind_function_no_gil(&LoomGraph::debug_dump), py::arg("path"))
      .def("register_generator_state", guarded([](LoomGraph& self, py::handle generator) {
             TORCH_CHECK_TYPE(THPGenerator_Check(generator.ptr()) == 1, "expected a torch.Generator, got ",
                              py::str(py::type::of(generator)).cast<std::string>());
             self.register_generator(THPGenerator_Unwrap(generator.ptr()));
           }),
           py::arg("state"));
  m.def("graph_pool_handle", [] { return runtime::new_pool_id(/*user_created=*/true); });
  m.def("is_current_stream_capturing", guarded(is_current_stream_capturing));
}

}  // namespace loom::glue
