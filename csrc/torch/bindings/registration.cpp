// Registers everything about the device with PyTorch, in order. Each room has functions of its own (its
// register.h).
#include "torch/core/registration.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/core/python_line.h"
#include "torch/cuda/builtin_backend.h"
#include "torch/dispatch/graph.h"
#include "torch/hooks/register.h"
#include "torch/kernels/register.h"
#include "torch/memory/register.h"
#include "torch/memory/resize.h"
#include "torch/numerics/register.h"
#include "torch/profiler/register.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

void register_fork_handler() { torch::utils::register_fork_handler_for_device_init(device_type()); }

constexpr Registration kRegistrations[] = {
    displace_builtin_backend, register_guard,     register_hooks,           register_ddp_timer,
    register_alloc_conf,      register_allocator, register_host_allocator,  register_storages,
    register_fork_handler,    register_stubs,     register_kineto_profiler, register_graph_impl,
#define LOOM_LIST(subject) register_##subject,
    LOOM_KERNELS(LOOM_LIST)
#undef LOOM_LIST
};

}  // namespace

void bind_registration(py::module_& m) {
  m.def("register_device", guarded([](const std::string& name, std::optional<size_t> stops_after) {
          std::vector<Registration> registrations(std::begin(kRegistrations), std::end(kRegistrations));
          if (stops_after.has_value()) {
            registrations.resize(std::min(*stops_after, registrations.size()));
            registrations.push_back([] { TORCH_CHECK(false, "stopped, as it was asked for"); });
          }
          register_device(name, registrations, restore_builtin_backend);
        }),
        py::arg("name"), py::arg("stops_after") = py::none());
  m.def("register_what_waits", guarded(&register_what_waits));
  m.def("num_registrations", [] { return std::size(kRegistrations); });
  m.def("keep_kineto_on_host", guarded(&keep_kineto_on_host));
  m.def("set_library_files", &set_library_files, py::arg("prefixes"));
  m.def("is_library_file", &is_library_file, py::arg("file"));
  m.def("register_numerics", guarded(&numerics::glue::register_ops));
  // PyTorch has a way to this for its type of other backends only.
  m.def("resize_storage", guarded([](const at::Storage& storage, int64_t bytes) {
          TORCH_CHECK_VALUE(storage.device_type() == device_type(),
                            "resize_storage: expected a storage of a ", device_name(), " device, got one of ",
                            storage.device());
          TORCH_CHECK_VALUE(bytes >= 0, "resize_storage: expected a size in bytes, got ", bytes);
          resize_storage(storage, static_cast<size_t>(bytes));
        }),
        py::arg("storage"), py::arg("bytes"));
}

}  // namespace loom::glue
