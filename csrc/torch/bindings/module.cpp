// The Python module torch_loom._C: what torch_loom/_C.pyi declares.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <map>
#include <string>

#include "runtime/worlds.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/bindings/memory_bindings.h"
#include "torch/core/device.h"
#include "torch/core/generator.h"
#include "torch/core/registration.h"
#include "torch/core/torch_version.h"
#include "torch/cuda/alerts.h"
#include "torch/dispatch/device_assert.h"
#include "torch/engine/allocator.h"
#include "torch/engine/engine.h"
#include "torch/hooks/shutdown.h"
#include "torch/loans/lend.h"
#include "torch/memory/alloc_conf.h"
#include "torch/memory/lazy.h"
#include "torch/memory/workspaces.h"
#include "torch/ops/fallback.h"
#include "torch/random/grid.h"
#include "util/host_memory.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// Leaked, so that no Python object is released after the interpreter has gone.
py::object& peek_callback() {
  static auto* callback = new py::object;
  return *callback;
}

workspaces::Library library_of(bool is_linear) {
  return is_linear ? workspaces::Library::kLinear : workspaces::Library::kPlain;
}

// Of each: cuBLAS's bytes, cuBLASLt's, whether they share a workspace, the variable that says no size.
using BlasRules = std::tuple<std::optional<size_t>, std::optional<size_t>, bool, std::string>;

void set_blas_rules(std::function<BlasRules()> ask) {
  // Leaked, so that no Python object is released after the interpreter has gone.
  auto* const kept = new std::function<BlasRules()>(std::move(ask));
  workspaces::set_rules([kept] {
    auto [bytes, linear_bytes, is_shared, not_understood] = (*kept)();
    return workspaces::Rules{bytes, linear_bytes, is_shared, std::move(not_understood)};
  });
}

int peek_device_count() noexcept {
  if (!Py_IsInitialized()) return 0;
  try {
    py::gil_scoped_acquire gil;
    return peek_callback() ? peek_callback()().cast<int>() : 0;
  } catch (...) {
    return 0;  // the error is raised, in full, when a device is used
  }
}

void initialize(std::vector<runtime::DeviceConfig> made_from, const std::string& launch, uint64_t chaos_seed,
                bool protect, bool refuse_fallbacks, int64_t host_memory_bytes, bool device_asserts) {
  host_memory::set_limit(host_memory_bytes);
  current_alloc_conf();   // refuses bad settings before there are devices
  register_what_waits();  // before a thread without Python's lock finds devices
  translated([&] { runtime::initialize({std::move(made_from), launch, chaos_seed, protect}); });
  prepare_memory();
  install_engine_allocator();
  fallback::set_refuses(refuse_fallbacks);
  set_device_asserts(device_asserts);
  fallback::watch(devices());
}

void leave_dry_run() {
  if (runtime::in_bad_fork()) return;
  const py::gil_scoped_release no_gil;  // what is freed may need it
  runtime::worlds::leave();
  fallback::watch(devices());
}

std::optional<std::string> enter_dry_run(std::vector<runtime::DeviceConfig> made_from) {
  devices();
  std::string refusal;
  {
    const py::gil_scoped_release no_gil;
    refusal = translated([&] { return runtime::worlds::enter({std::move(made_from)}); });
  }
  if (!refusal.empty()) return refusal;
  try {
    prepare_memory();
    fallback::watch(devices());
  } catch (...) {
    leave_dry_run();
    throw;
  }
  return std::nullopt;
}

// Calls a Python function without arguments, from any thread, and throws what it raises.
std::function<void()> caller_of(py::object callback) {
  auto* kept = new py::object(std::move(callback));  // leaked, as above
  return [kept] {
    py::gil_scoped_acquire gil;
    if (PyObject* result = PyObject_CallNoArgs(kept->ptr()); result == nullptr) {
      python_error error;
      error.persist();
      throw std::move(error);
    } else {
      Py_DECREF(result);
    }
  };
}

void set_initializer(py::object callback) { runtime::set_initializer(caller_of(std::move(callback))); }

py::dict device_properties(int64_t index) {
  check_device_index(index);
  const runtime::Device& device = devices().device(static_cast<int>(index));
  const driver::Driver& driver = device.driver();
  py::dict out;
  const runtime::Chip& chip = device.chip();
  out["name"] = chip.name;
  out["total_memory"] = translated([&] { return driver.memory_info(device.driver_index).total_bytes; });
  out["major"] = chip.capability_major;
  out["minor"] = chip.capability_minor;
  out["multi_processor_count"] = chip.num_cores;
  out["clock_rate_mhz"] = chip.clock_mhz;
  out["memory_policy"] = device.is_lazy() ? "lazy" : "eager";
  out["driver"] = driver.info().name;
  out["engine"] = driver.info().engine;
  out["physical_index"] = device.physical;
  return out;
}

runtime::Sizes sizes_of(const std::map<std::string, int64_t>& given) {
  runtime::Sizes sizes;
  const auto take = [&](const char* name, int64_t& size) {
    const auto found = given.find(name);
    TORCH_CHECK_VALUE(found != given.end(), "sizes: there is no ", name);
    size = found->second;
  };
  take("max_threads_per_core", sizes.max_threads_per_core);
  take("registers_per_core", sizes.registers_per_core);
  take("shared_memory_per_core_bytes", sizes.shared_memory_per_core_bytes);
  take("shared_memory_per_block_optin_bytes", sizes.shared_memory_per_block_optin_bytes);
  take("l2_cache_bytes", sizes.l2_cache_bytes);
  take("memory_clock_mhz", sizes.memory_clock_mhz);
  take("memory_bus_bits", sizes.memory_bus_bits);
  return sizes;
}

void bind_chip(py::module_& m) {
  using runtime::Chip;
  py::class_<Chip>(m, "Chip")
      .def(py::init([](std::string name, std::string description, int64_t memory_bytes, bool lazy_memory,
                       std::vector<std::string> dtypes, std::vector<std::string> amp_dtypes,
                       std::optional<std::vector<std::string>> native_ops, int capability_major,
                       int capability_minor, int num_cores, int64_t clock_mhz,
                       const std::vector<std::string>& fused_kernels, bool deterministic, bool is_gpu,
                       std::tuple<int, int, bool, bool> random_grid,
                       const std::map<std::string, int64_t>& sizes) {
             const std::optional<runtime::FusedKernels> fused = runtime::fused_kernels_of(fused_kernels);
             TORCH_CHECK_VALUE(fused.has_value(), "fused_kernels: unknown name among ", fused_kernels);
             return Chip{std::move(name),
                         std::move(description),
                         memory_bytes,
                         lazy_memory,
                         std::move(dtypes),
                         std::move(amp_dtypes),
                         std::move(native_ops),
                         capability_major,
                         capability_minor,
                         num_cores,
                         *fused,
                         clock_mhz,
                         deterministic,
                         is_gpu,
                         {std::get<0>(random_grid), std::get<1>(random_grid), std::get<2>(random_grid),
                          std::get<3>(random_grid)},
                         sizes_of(sizes)};
           }),
           py::kw_only(), py::arg("name"), py::arg("description"), py::arg("memory_bytes"),
           py::arg("lazy_memory"), py::arg("dtypes"), py::arg("amp_dtypes"), py::arg("native_ops"),
           py::arg("capability_major"), py::arg("capability_minor"), py::arg("num_cores"),
           py::arg("clock_mhz"), py::arg("fused_kernels"), py::arg("deterministic"), py::arg("is_gpu"),
           py::arg("random_grid"), py::arg("sizes"))
      .def_readonly("name", &Chip::name)
      .def_readonly("description", &Chip::description)
      .def_readonly("memory_bytes", &Chip::memory_bytes)
      .def_readonly("lazy_memory", &Chip::lazy_memory)
      .def_readonly("dtypes", &Chip::dtypes)
      .def_readonly("amp_dtypes", &Chip::amp_dtypes)
      .def_readonly("native_ops", &Chip::native_ops)
      .def_readonly("capability_major", &Chip::capability_major)
      .def_readonly("capability_minor", &Chip::capability_minor)
      .def_readonly("num_cores", &Chip::num_cores)
      .def_readonly("clock_mhz", &Chip::clock_mhz)
      .def_readonly("deterministic", &Chip::deterministic)
      .def_readonly("is_gpu", &Chip::is_gpu)
      .def_property_readonly("fused_kernels", [](const Chip& chip) {
        std::vector<std::string> names;
        for (size_t i = 0; i < std::size(runtime::kFusedKernelNames); ++i) {
          if (chip.has(static_cast<runtime::FusedKernel>(i)))
            names.emplace_back(runtime::kFusedKernelNames[i]);
        }
        return names;
      });
  using runtime::DeviceConfig;
  py::class_<DeviceConfig>(m, "DeviceConfig")
      .def(py::init([](int physical, std::string driver, int64_t memory_bytes, int64_t context_bytes,
                       const Chip& chip, bool lazy) {
             return DeviceConfig{physical, std::move(driver), memory_bytes, context_bytes, chip, lazy};
           }),
           py::kw_only(), py::arg("physical"), py::arg("driver"), py::arg("memory_bytes"),
           py::arg("context_bytes"), py::arg("chip"), py::arg("lazy"));
}

}  // namespace

}  // namespace loom::glue

PYBIND11_MODULE(_C, m) {
  using namespace loom;
  using namespace loom::glue;
  m.attr("built_torch_version") = LOOM_BUILT_TORCH_VERSION;
  bind_registration(m);
  bind_graphs(m);
  bind_trees(m);
  bind_tape(m);
  bind_clock(m);
  bind_nvtx(m);
  set_device_count_peek(&peek_device_count);

  bind_chip(m);
  runtime::set_device_hook([](runtime::Device& device) {
    prepare_engine(device);
    fallback::prepare(device);
  });
  m.def("initialize", guarded(initialize), py::kw_only(), py::arg("devices"), py::arg("launch"),
        py::arg("chaos_seed"), py::arg("protect"), py::arg("refuse_fallbacks"), py::arg("host_memory_bytes"),
        py::arg("device_asserts"));
  m.def("set_chaos_seed", guarded([](uint64_t seed) {
          const py::gil_scoped_release no_gil;
          translated([&] { devices().set_chaos_seed(seed); });
        }),
        py::arg("seed"));
  m.def("enter_dry_run", guarded(enter_dry_run), py::kw_only(), py::arg("devices"));
  m.def("leave_dry_run", guarded(leave_dry_run));
  m.def("choose_backward_thread", &choose_backward_thread);
  m.def("world", [] { return runtime::detail::world.load(); });
  m.def("chip", guarded([](std::optional<int64_t> index) {
          const int64_t own = index.has_value() ? *index : resolve_device(std::nullopt).index();
          check_device_index(own);
          return devices().device(static_cast<int>(own)).chip();
        }),
        py::arg("index") = py::none());
  m.def("set_initializer", guarded(set_initializer));
  m.def("leave_memory_policy_open",
        [](py::object settle) { leave_policy_open(caller_of(std::move(settle))); });
  m.def("close_memory_policy", guarded(close_policy), py::arg("are_lazy"));
  m.def("set_blas_determinism", &set_blas_determinism);
  m.def("set_blas_rules", set_blas_rules);
  m.def("set_random_rule", cuda_random::set_rule);
  m.def("draws_cuda_numbers", guarded([](int64_t device) {
          check_device_index(device);
          return cuda_random::grid_of(static_cast<int>(device)) != nullptr;
        }),
        py::arg("device"));
  m.def("provide_workspaces", guarded([](const std::vector<std::pair<size_t, size_t>>& figures) {
          std::vector<workspaces::Sizes> sizes;
          for (const auto& [bytes, linear_bytes] : figures) sizes.push_back({bytes, linear_bytes});
          workspaces::provide(devices(), std::move(sizes));
        }));
  m.def("clear_workspaces", guarded([] {
          const py::gil_scoped_release no_gil;
          workspaces::clear(devices());
        }));
  m.def("workspace_bytes", guarded([](bool is_linear) {
          const int device = resolve_device(std::nullopt).index();
          const py::gil_scoped_release no_gil;
          return workspaces::bytes_of(library_of(is_linear), device);
        }));
  m.def("set_workspace_bytes", [](bool is_linear, std::optional<size_t> bytes) {
    const py::gil_scoped_release no_gil;
    workspaces::set_bytes(library_of(is_linear), bytes);
  });
  m.def("set_device_count_peek", [](py::object callback) { peek_callback() = std::move(callback); });
  m.def("is_initialized", [] { return runtime::is_initialized(); });
  m.def("is_in_bad_fork", [] { return runtime::in_bad_fork(); });
  m.def("device_has_context", guarded([](int64_t index) { return device_has_context(index); }));
  m.def("device_count", [] { return device_count(); });
  m.def("current_device", guarded([] { return static_cast<int>(resolve_device(std::nullopt).index()); }));
  m.def("set_device", guarded([](int64_t index) {
          check_device_index(index);
          runtime::set_current_device(static_cast<int>(index));
        }));
  const auto exchange = [](int64_t index) {
    if (index < 0) return -1;
    const int previous = resolve_device(std::nullopt).index();
    check_device_index(index);
    runtime::set_current_device(static_cast<int>(index));
    return previous;
  };
  m.def("exchange_device", guarded(exchange));
  m.def("maybe_exchange_device", guarded(exchange));
  m.def("synchronize", guarded([](int64_t index) {
          py::gil_scoped_release no_gil;
          check_device_index(index);
          translated([&] { runtime::synchronize_device(static_cast<int>(index)); });
        }));
  // What was issued ends; a failure stays with its stream.
  m.def("drain", guarded([] {
          py::gil_scoped_release no_gil;
          if (!runtime::is_initialized() || runtime::in_bad_fork()) return;
          translated([] {
            for (int index = 0; index < devices().device_count(); ++index) runtime::drain_device(index);
          });
        }));
  m.def("stop_autograd_threads", [] {
    py::gil_scoped_release no_gil;
    if (runtime::is_initialized() && !runtime::in_bad_fork()) stop_autograd_threads();
  });
  m.def("default_generator", guarded([](int64_t index) {
          check_device_index(index);
          return py::reinterpret_steal<py::object>(
              THPGenerator_Wrap(default_generator(static_cast<int>(index))));
        }));
  m.def("device_properties", guarded(device_properties));
  m.def("can_access_peer", guarded([](int64_t index, int64_t peer) {
          check_device_index(index);
          check_device_index(peer);
          const driver::Driver& driver = devices().device(static_cast<int>(index)).driver();
          return index != peer && &driver == &devices().device(static_cast<int>(peer)).driver() &&
                 driver.info().peer_access;
        }));
  bind_memory(m);
  bind_memory_history(m);
  bind_checkpoints(m);
  bind_streams(m);
  bind_busy(m);
  bind_implicit_sync(m);
  bind_compiled_kernels(m);
  bind_captured_calls(m);
  bind_ipc(m);
  bind_distributed(m);
  bind_explain(m);
  bind_ops(m);
}
