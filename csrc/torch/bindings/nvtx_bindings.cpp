#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/profiler/kineto.h"
#include "torch/profiler/nvtx.h"

namespace py = pybind11;

namespace loom::glue {

void bind_nvtx(py::module_& m) {
  m.def("nvtx_range_push", guarded(nvtx::range_push));
  m.def("nvtx_range_pop", guarded(nvtx::range_pop));
  m.def("nvtx_range_start", guarded(nvtx::range_start));
  m.def("nvtx_range_end", guarded(nvtx::range_end));
  m.def("nvtx_mark", guarded(nvtx::mark));
  m.def("set_profile_open", guarded(set_profile_open));
}

}  // namespace loom::glue
