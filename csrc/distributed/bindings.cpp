// torch_loom._C's class of communicators, and its options.
#include "torch/bindings/bindings.h"

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <mutex>
#include <tuple>

#include "distributed/command.h"
#include "distributed/communicator.h"
#include "distributed/prices.h"
#include "distributed/recorder.h"
#include "distributed/symmetric.h"
#include "distributed/work.h"
#include "runtime/runtime.h"
#include "torch/bindings/guarded.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

using distributed::Communicator;
using distributed::GroupOptions;
using distributed::NcclConfig;
using distributed::Prices;
using distributed::Ranks;
using std::chrono::milliseconds;
using PythonLayout = std::function<int(const Ranks&)>;
using PythonCost = std::function<int64_t(int, const std::string&, uint64_t, int)>;

// Leaked, so that no Python object is released after the interpreter has gone.
struct PythonPrices {
  PythonLayout layout_of;
  PythonCost cost_of;
};
PythonPrices*& python_prices() {
  static PythonPrices* prices = nullptr;
  return prices;
}

int layout_of(const Ranks& ranks) {
  const py::gil_scoped_acquire gil;
  return python_prices()->layout_of(ranks);
}

// Python is asked once for each kind, size and layout of the devices that the program sees.
int64_t cost_of(int device, const char* name, uint64_t bytes, int layout) {
  using Key = std::tuple<int64_t, int, std::string, uint64_t, int>;
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<Key, int64_t>;
  constexpr size_t kMost = 1 << 16;
  const Key key{runtime::detail::world.load(), device, name, bytes, layout};
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    if (const auto found = known->find(key); found != known->end()) return found->second;
  }
  int64_t nanoseconds;
  {
    const py::gil_scoped_acquire gil;
    nanoseconds = python_prices()->cost_of(device, name, bytes, layout);
  }
  const std::lock_guard<std::mutex> lock(*mutex);
  if (known->size() < kMost) known->emplace(key, nanoseconds);
  return nanoseconds;
}

distributed::Meet meet_in_python(py::object callback) {
  // Released with the interpreter's lock, wherever that happens.
  auto* const held = new py::object(std::move(callback));
  const std::shared_ptr<py::object> kept(held, [](py::object* object) {
    const py::gil_scoped_acquire gil;
    delete object;
  });
  return [kept](const std::string& key, const Ranks& members, const char* name, int64_t ready_ns) {
    const py::gil_scoped_acquire gil;
    return (*kept)(key, members, name, ready_ns).cast<int64_t>();
  };
}

c10::intrusive_ptr<Communicator> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                      const c10::intrusive_ptr<GroupOptions>& options) {
  const py::gil_scoped_release no_gil;
  return c10::make_intrusive<Communicator>(store, rank, size, options);
}

py::object*& python_dump() {
  static py::object* callback = nullptr;  // leaked
  return callback;
}

void dump_in_python(int global_rank) {
  const py::gil_scoped_acquire gil;
  try {
    (*python_dump())(global_rank);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("the dump of the flight recorder");
  }
}

// Asks Python for each group that is made: whether mismatches are refused, and what the watchdog's variables
// say, or None.
void set_watchdog(py::object read) {
  auto* const callback = new py::object(std::move(read));  // leaked
  distributed::set_watchdog_reader([callback] {
    const py::gil_scoped_acquire gil;
    const auto [checks, found] = (*callback)().cast<std::pair<bool, py::object>>();
    distributed::Watchdog watchdog;
    watchdog.checks = checks;
    if (found.is_none()) return watchdog;
    const auto flag = [&found = found](const char* name) { return found.attr(name).cast<bool>(); };
    watchdog.ends_process = flag("ends_process");
    watchdog.blocks_host = flag("waits_block_host");
    watchdog.finds_nan = flag("finds_nan");
    watchdog.is_timed = flag("is_timed");
    watchdog.reports_desync = flag("reports_desync");
    distributed::recorder::set_capacity(found.attr("num_records").cast<size_t>());
    return watchdog;
  });
}

bool has_timeout(Communicator&, const c10d::Work& work, milliseconds timeout) {
  const auto* const own = dynamic_cast<const distributed::OwnWork*>(&work);
  if (own == nullptr) {
    C10_THROW_ERROR(DistBackendError, "Non c10d::WorkNCCL returned from collective");
  }
  return own->issued().timeout == timeout;
}

py::list records() {
  const auto tensors = [](const std::vector<distributed::RecordedTensor>& all) {
    py::list found;
    for (const auto& each : all) found.append(py::make_tuple(each.sizes, c10::toString(each.dtype)));
    return found;
  };
  py::list found;
  for (const distributed::Recorded& item : distributed::recorder::entries()) {
    py::dict entry;
    entry["id"] = item.id;
    entry["group"] =
        py::make_tuple(item.group->id, item.group->name, item.group->description, item.group->ranks);
    entry["sequence"] = item.sequence;
    entry["message_sequence"] = item.message_sequence;
    entry["name"] = item.name;
    entry["line"] = item.line;
    entry["inputs"] = tensors(item.inputs);
    entry["outputs"] = tensors(item.outputs);
    entry["is_message"] = item.is_message;
    entry["timeout_ms"] = item.timeout.count();
    entry["created_ns"] = item.created_ns;
    entry["started_ns"] = item.started_ns;
    entry["completed_ns"] = item.completed_ns;
    found.append(entry);
  }
  return found;
}

void bind_options(py::module_& m) {
  py::class_<NcclConfig>(m, "CommunicatorConfig")
      .def(py::init<>())
      .def_readwrite("blocking", &NcclConfig::blocking)
      .def_readwrite("cga_cluster_size", &NcclConfig::cga_cluster_size)
      .def_readwrite("min_ctas", &NcclConfig::min_ctas)
      .def_readwrite("max_ctas", &NcclConfig::max_ctas)
      .def_readwrite("net_name", &NcclConfig::net_name)
      .def_readwrite("split_share", &NcclConfig::split_share)
      .def_readwrite("traffic_class", &NcclConfig::traffic_class)
      .def_readwrite("collnet_enable", &NcclConfig::collnet_enable)
      .def_readwrite("cta_policy", &NcclConfig::cta_policy)
      .def_readwrite("shrink_share", &NcclConfig::shrink_share)
      .def_readwrite("nvls_ctas", &NcclConfig::nvls_ctas)
      .def_readwrite("n_channels_per_net_peer", &NcclConfig::n_channels_per_net_peer)
      .def_readwrite("nvlink_centric_sched", &NcclConfig::nvlink_centric_sched);
  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(m, "CommunicatorOptions")
      .def(py::init([](const std::string& backend, milliseconds timeout, bool is_high_priority_stream) {
             auto options = c10::make_intrusive<GroupOptions>(backend, timeout);
             options->is_high_priority_stream = is_high_priority_stream;
             return options;
           }),
           py::arg("backend"), py::arg("timeout"), py::arg("is_high_priority_stream") = false)
      // As ProcessGroupNCCL.Options is called, with NCCL's time.
      .def(py::init([](bool is_high_priority_stream) {
             auto options = c10::make_intrusive<GroupOptions>("nccl", std::chrono::minutes(10));
             options->is_high_priority_stream = is_high_priority_stream;
             return options;
           }),
           py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &GroupOptions::is_high_priority_stream)
      .def_readwrite("config", &GroupOptions::config)
      .def_readwrite("split_color", &GroupOptions::split_color)
      .def_readwrite("split_from", &GroupOptions::split_from)
      .def("__copy__", [](const GroupOptions& self) { return c10::make_intrusive<GroupOptions>(self); })
      .def("__deepcopy__",
           [](const GroupOptions& self, const py::dict&) { return c10::make_intrusive<GroupOptions>(self); });
}

}  // namespace

void bind_distributed(py::module_& m) {
  // The classes that these derive from.
  py::module_::import("torch._C._distributed_c10d");
  bind_options(m);
  using no_gil = py::call_guard<py::gil_scoped_release>;
  py::class_<Communicator, c10d::Backend, c10::intrusive_ptr<Communicator>>(m, "Communicator")
      .def(py::init(&make), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly("options", [](const Communicator& self) { return self.options(); })
      .def_property_readonly("uid", &Communicator::number)
      .def("comm_split_count", &Communicator::num_splits)
      .def(
          "perform_nocolor_split", [](Communicator& self, const py::object&) { self.count_split(); },
          py::arg("device"))
      .def("_is_initialized", &Communicator::is_connected)
      .def("_set_default_timeout", &Communicator::setTimeout, py::arg("timeout"), no_gil())
      .def("_set_enable_nan_check", &Communicator::set_checks_for_nan, py::arg("enable_nan_check"))
      .def("_add_ephemeral_timeout", &Communicator::add_extra_time, py::arg("timeout"))
      .def("_verify_work_timeout", &has_timeout, py::arg("work"), py::arg("timeout"))
      .def("get_error", &Communicator::getError)
      .def("abort", &Communicator::abort, no_gil())
      .def("shutdown", &Communicator::shutdown, no_gil());
  m.def("set_collective_prices", [](PythonLayout layout, PythonCost cost) {
    python_prices() = new PythonPrices{std::move(layout), std::move(cost)};
    distributed::set_prices({&layout_of, &cost_of});
  });
  m.def("set_collective_meeting", [](const py::object& meet, Ranks ranks) {
    distributed::set_meeting(meet.is_none() ? distributed::Meet{} : meet_in_python(meet), std::move(ranks));
  });
  m.def("collective_traffic", [] {
    py::list found;
    for (const distributed::Traffic& each : distributed::traffic()) {
      found.append(py::make_tuple(distributed::name_of(each.kind), each.num_ranks, each.calls, each.bytes));
    }
    return found;
  });
  m.def("set_collective_watchdog", &set_watchdog);
  m.def("set_collective_dump", [](py::object callback) {
    python_dump() = new py::object(std::move(callback));
    distributed::set_dump(&dump_in_python);
  });
  m.def("collective_records", &records);
  m.def("abort_collectives", &distributed::abort_all, no_gil());
  m.def("provide_symmetric_memory", &distributed::provide_symmetric_memory);
}

}  // namespace loom::glue
