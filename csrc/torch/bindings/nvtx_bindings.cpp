#include "torch/bindings/nvtx_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/profiler/nvtx.h"
#include "torch/profiler/kineto.h"

namespace py = pybind11;

namespace loom::glue {

void bind_nvtx(py::module_& m) {
  m.def("nvtx_range_push", torch::wrap_pybind_function(nvtx::range_push));
  m.def("nvtx_range_pop", torch::wrap_pybind_function(nvtx::range_pop));
  m.def("nvtx_range_start", torch::wrap_pybind_function(nvtx::range_start));
  m.def("nvtx_range_end", torch::wrap_pybind_function(nvtx::range_end));
  m.def("nvtx_mark", torch::wrap_pybind_function(nvtx::mark));
  m.def("set_profile_open", torch::wrap_pybind_function(set_profile_open));
}

}  // namespace loom::glue
