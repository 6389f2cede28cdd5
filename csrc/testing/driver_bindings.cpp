// Addresses are ints, handles are objects, and Python's lock is never held during a call into a driver: a
// driver may block, and may call a kernel on a thread of its own.
#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "driver/registry.h"
#include "testing/bindings.h"
#include "util/waiting.h"

namespace py = pybind11;

namespace loom::testing {

using namespace loom::driver;

namespace {

void* to_pointer(uint64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }
uint64_t to_int(const void* address) { return reinterpret_cast<uintptr_t>(address); }

bool is_python_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// A driver's end waits for its workers, which may be waiting for Python's lock. When Python itself ends they
// never get it: then the driver ends with the process.
struct Unlocked {
  void operator()(Driver* driver) const {
    if (is_python_ending()) return;
    unlocked([&] { delete driver; });
  }
};
using DriverClass = py::class_<Driver, std::unique_ptr<Driver, Unlocked>>;

// A handle that knows its driver and whether it was destroyed: a wrong handle is an error, not a crash.
template <typename Pointer>
struct Handle {
  Driver* driver;
  Pointer pointer;
};
using PythonStream = Handle<Stream>;
using PythonEvent = Handle<Event>;

// None is the null handle: what a driver does with it is part of the contract.
template <typename Pointer>
Pointer get(Driver& driver, const Handle<Pointer>* handle) {
  if (handle == nullptr) return nullptr;
  if (handle->driver != &driver) throw InvalidArgument("the stream or event belongs to another driver");
  if (handle->pointer == nullptr) throw InvalidArgument("the stream or event has been destroyed");
  return handle->pointer;
}

// Destroys once: if the driver refuses, the handle stays usable.
template <typename Pointer, typename Destroy>
void destroy(Driver& driver, Handle<Pointer>* handle, Destroy&& call) {
  const Pointer pointer = get(driver, handle);
  if (handle != nullptr) handle->pointer = nullptr;
  try {
    unlocked([&] { call(pointer); });
  } catch (...) {
    if (handle != nullptr) handle->pointer = pointer;
    throw;
  }
}

// The context of a kernel written in Python.
struct PythonKernel {
  py::object run, release;
  std::string name;
  Stream submitted_to;
};

void run_python(void* context, Stream stream) {
  const py::gil_scoped_acquire gil;
  const auto* kernel = static_cast<PythonKernel*>(context);
  if (stream != kernel->submitted_to) throw Error("the kernel was told of another stream than its own");
  kernel->run();
}

void release_python(void* context) {
  const py::gil_scoped_acquire gil;
  auto* kernel = static_cast<PythonKernel*>(context);
  if (!kernel->release.is_none()) {
    try {
      kernel->release();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("release of a kernel");
    }
  }
  delete kernel;
}

void submit(Driver& driver, const PythonStream* stream, py::object run, py::object release, std::string name,
            bool in_place) {
  const Stream target = get(driver, stream);
  const bool has_run = !run.is_none();
  // From here on the driver owns it: release() is called even when the kernel is refused.
  auto* context = new PythonKernel{std::move(run), std::move(release), std::move(name), target};
  const Kernel kernel{context->name.c_str(), has_run ? run_python : nullptr, release_python, context,
                      in_place};
  unlocked([&] { driver.submit(target, kernel); });
}

// Where the host can touch the bytes at an address. Refuses what it cannot, which would end the process.
char* to_touchable(const Driver& driver, uint64_t address, size_t bytes) {
  const Address first = driver.locate(to_pointer(address));
  const Address last = driver.locate(to_pointer(address + (bytes == 0 ? 0 : bytes - 1)));
  if (first.kind == AddressKind::kUnknown || first.kind != last.kind || first.device != last.device) {
    throw InvalidArgument("address " + std::to_string(address) + " with " + std::to_string(bytes) +
                          " bytes is neither device nor pinned host memory");
  }
  if (first.engine_address == nullptr || last.engine_address == nullptr) {
    throw InvalidArgument("address " + std::to_string(address) + " with " + std::to_string(bytes) +
                          " bytes is not allocated");
  }
  if (first.kind == AddressKind::kDevice && !driver.info().executes_kernels) {
    throw NotSupported("the host cannot address the memory of driver '" + driver.info().name + "'");
  }
  return static_cast<char*>(first.engine_address);
}

void bind_errors(py::module_& m) {
  py::register_local_exception<Error>(m, "Error", PyExc_RuntimeError);
  py::register_local_exception<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError);
  py::register_local_exception<NotReady>(m, "NotReady", PyExc_RuntimeError);
  py::register_local_exception<NotSupported>(m, "NotSupported", PyExc_NotImplementedError);
  py::register_local_exception<SharingError>(m, "SharingError", PyExc_RuntimeError);
  py::register_local_exception<Unusable>(m, "Unusable", PyExc_RuntimeError);
  // Leaked, so that it outlives the interpreter.
  static const auto* const out_of_memory =
      new py::object(py::exception<OutOfMemory>(m, "OutOfMemory", PyExc_MemoryError));
  py::register_local_exception_translator([](std::exception_ptr failure) {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const OutOfMemory& error) {
      const py::object instance = (*out_of_memory)(error.what());
      instance.attr("device") = error.device;
      instance.attr("asked_bytes") = error.asked_bytes;
      instance.attr("free_bytes") = error.free_bytes;
      instance.attr("total_bytes") = error.total_bytes;
      PyErr_SetObject(out_of_memory->ptr(), instance.ptr());
    }
  });
}

void bind_figures(py::module_& m) {
  py::enum_<AddressKind>(m, "AddressKind")
      .value("UNKNOWN", AddressKind::kUnknown)
      .value("DEVICE", AddressKind::kDevice)
      .value("PINNED_HOST", AddressKind::kPinnedHost);
  py::class_<Info>(m, "Info")
      .def_readonly("name", &Info::name)
      .def_readonly("engine", &Info::engine)
      .def_readonly("device_count", &Info::device_count)
      .def_readonly("executes_kernels", &Info::executes_kernels)
      .def_readonly("queues_kernels", &Info::queues_kernels)
      .def_readonly("sticky_failures", &Info::sticky_failures)
      .def_readonly("host_addressable", &Info::host_addressable)
      .def_readonly("unified_addresses", &Info::unified_addresses)
      .def_readonly("peer_access", &Info::peer_access)
      .def_readonly("shared_memory", &Info::shared_memory)
      .def_readonly("memory_rooms", &Info::memory_rooms)
      .def_readonly("stream_priorities", &Info::stream_priorities)
      .def_readonly("stream_activity", &Info::stream_activity)
      .def_readonly("commits_late", &Info::commits_late);
  py::class_<MemoryInfo>(m, "MemoryInfo")
      .def_readonly("free_bytes", &MemoryInfo::free_bytes)
      .def_readonly("total_bytes", &MemoryInfo::total_bytes);
  py::class_<SharedMemory>(m, "SharedMemory")
      .def_property_readonly("handle",
                             [](const SharedMemory& memory) {
                               return py::bytes(reinterpret_cast<const char*>(memory.handle.data()),
                                                memory.handle.size());
                             })
      .def_readonly("bytes", &SharedMemory::bytes)
      .def_readonly("offset", &SharedMemory::offset)
      .def_readonly("reach", &SharedMemory::reach);
  py::class_<Address>(m, "Address")
      .def_readonly("kind", &Address::kind)
      .def_readonly("device", &Address::device)
      .def_property_readonly("device_address",
                             [](const Address& address) { return to_int(address.device_address); })
      .def_property_readonly("engine_address",
                             [](const Address& address) { return to_int(address.engine_address); });
}

void bind_memory(DriverClass& cls) {
  cls.def(
         "allocate",
         [](Driver& driver, int device, size_t bytes, size_t room_bytes, uint64_t at) {
           return to_int(
               unlocked([&] { return driver.allocate(device, bytes, {room_bytes, to_pointer(at)}); }));
         },
         py::arg("device"), py::arg("bytes"), py::arg("room_bytes") = 0, py::arg("at") = 0)
      .def(
          "deallocate",
          [](Driver& driver, uint64_t address, size_t bytes) {
            unlocked([&] { driver.deallocate(to_pointer(address), bytes); });
          },
          py::arg("address"), py::arg("bytes") = 0)
      .def("memory_info", [](const Driver& driver,
                             int device) { return unlocked([&] { return driver.memory_info(device); }); })
      .def("share",
           [](Driver& driver, int device, uint64_t address) {
             return unlocked([&] { return driver.share(device, to_pointer(address)); });
           })
      .def("map_shared",
           [](Driver& driver, int device, const py::bytes& text, size_t bytes) {
             const auto handle_bytes = text.cast<std::string_view>();
             ShareHandle handle{};
             if (handle_bytes.size() != handle.size()) throw py::value_error("a handle has 64 bytes");
             std::memcpy(handle.data(), handle_bytes.data(), handle.size());
             return to_int(unlocked([&] { return driver.map_shared(device, handle, bytes); }));
           })
      .def("locate",
           [](const Driver& driver, uint64_t address) {
             return unlocked([&] { return driver.locate(to_pointer(address)); });
           })
      .def("allocate_host",
           [](Driver& driver, size_t bytes) {
             return to_int(unlocked([&] { return driver.allocate_host(bytes); }));
           })
      .def("register_memory",
           [](Driver& driver, int device, uint64_t address, size_t bytes) {
             unlocked([&] { driver.register_memory(device, to_pointer(address), bytes); });
           })
      .def("unregister_memory",
           [](Driver& driver, uint64_t address) {
             unlocked([&] { driver.unregister_memory(to_pointer(address)); });
           })
      .def(
          "read",
          [](const Driver& driver, uint64_t address, size_t bytes) {
            return py::bytes(to_touchable(driver, address, bytes), bytes);
          },
          "The bytes at an address of device or pinned memory, fenced or not; waits for no stream. Raises "
          "NotSupported where there are none.")
      .def(
          "write",
          [](const Driver& driver, uint64_t address, const py::bytes& data) {
            const auto bytes = data.cast<std::string_view>();
            std::memcpy(to_touchable(driver, address, bytes.size()), bytes.data(), bytes.size());
          },
          "Sets the bytes at an address of device or pinned memory, fenced or not; waits for no stream. "
          "Raises "
          "NotSupported where there are none.");
}

void bind_streams(DriverClass& cls) {
  cls.def(
         "create_stream",
         [](Driver& driver, int device, int priority, bool inline_when_idle) {
           const StreamOptions options{.priority = priority, .inline_when_idle = inline_when_idle};
           return PythonStream{&driver, unlocked([&] { return driver.create_stream(device, options); })};
         },
         py::arg("device"), py::arg("priority") = StreamOptions{}.priority,
         py::arg("inline_when_idle") = StreamOptions{}.inline_when_idle, py::keep_alive<0, 1>())
      .def("destroy_stream",
           [](Driver& driver, PythonStream* stream) {
             destroy(driver, stream, [&](Stream pointer) { driver.destroy_stream(pointer); });
           })
      .def("query_stream",
           [](Driver& driver, const PythonStream* stream) {
             const Stream pointer = get(driver, stream);
             return unlocked([&] { return driver.query_stream(pointer); });
           })
      .def(
          "synchronize_stream",
          [](Driver& driver, const PythonStream* stream, OnFailure on_failure) {
            const Stream pointer = get(driver, stream);
            unlocked([&] { driver.synchronize_stream(pointer, on_failure); });
          },
          py::arg("stream"), py::arg("on_failure") = OnFailure::kRaise)
      .def("runs_in_place",
           [](Driver& driver, const PythonStream* stream) {
             const Stream pointer = get(driver, stream);
             return unlocked([&] { return driver.runs_in_place(pointer); });
           })
      .def("submit", submit, py::arg("stream"), py::arg("run"), py::arg("release") = py::none(),
           py::arg("name") = "python", py::arg("in_place") = false,
           "Submits a kernel that calls `run()`; `release()`, if given, is called when the driver lets go of "
           "it.")
      .def("copy",
           [](Driver& driver, const PythonStream* stream, uint64_t destination, uint64_t source,
              size_t bytes) {
             const Stream pointer = get(driver, stream);
             unlocked([&] { driver.copy(pointer, to_pointer(destination), to_pointer(source), bytes); });
           })
      .def("fill",
           [](Driver& driver, const PythonStream* stream, uint64_t destination, uint8_t value, size_t bytes) {
             const Stream pointer = get(driver, stream);
             unlocked([&] { driver.fill(pointer, to_pointer(destination), value, bytes); });
           });
}

void bind_events(DriverClass& cls) {
  cls.def(
         "create_event",
         [](Driver& driver, bool timing) {
           return PythonEvent{&driver, unlocked([&] { return driver.create_event({timing}); })};
         },
         py::arg("timing") = EventOptions{}.timing, py::keep_alive<0, 1>())
      .def("destroy_event",
           [](Driver& driver, PythonEvent* event) {
             destroy(driver, event, [&](Event pointer) { driver.destroy_event(pointer); });
           })
      .def("record_event",
           [](Driver& driver, const PythonEvent* event, const PythonStream* stream) {
             const Event what = get(driver, event);
             const Stream where = get(driver, stream);
             unlocked([&] { driver.record_event(what, where); });
           })
      .def("wait_event",
           [](Driver& driver, const PythonStream* stream, const PythonEvent* event) {
             const Stream who = get(driver, stream);
             const Event what = get(driver, event);
             unlocked([&] { driver.wait_event(who, what); });
           })
      .def("query_event",
           [](Driver& driver, const PythonEvent* event) {
             const Event pointer = get(driver, event);
             return unlocked([&] { return driver.query_event(pointer); });
           })
      .def("synchronize_event",
           [](Driver& driver, const PythonEvent* event) {
             const Event pointer = get(driver, event);
             unlocked([&] { driver.synchronize_event(pointer); });
           })
      .def("elapsed_ns", [](Driver& driver, const PythonEvent* start, const PythonEvent* end) {
        const Event first = get(driver, start);
        const Event second = get(driver, end);
        return unlocked([&] { return driver.elapsed_ns(first, second); });
      });
}

// Leaked with the interpreter.
py::object& python_wait_check() {
  static auto* const check = new py::object;
  return *check;
}

void call_wait_check() {
  const py::gil_scoped_acquire gil;
  if (const py::object check = python_wait_check()) check();
}

}  // namespace

void bind_driver(py::module_& parent) {
  py::module_ m = parent.def_submodule("driver", "The driver seam: csrc/driver/driver.h, method by method.");
  bind_errors(m);
  bind_figures(m);
  py::class_<PythonStream>(m, "Stream");
  py::class_<PythonEvent>(m, "Event");
  py::enum_<OnFailure>(m, "OnFailure").value("RAISE", OnFailure::kRaise).value("KEEP", OnFailure::kKeep);
  py::enum_<Launch>(m, "Launch")
      .value("AUTO", Launch::kAuto)
      .value("BLOCKING", Launch::kBlocking)
      .value("CHAOS", Launch::kChaos);
  DriverClass cls(m, "Driver");
  cls.def("info", &Driver::info, py::return_value_policy::copy);
  bind_memory(cls);
  bind_streams(cls);
  bind_events(cls);
  m.def("names", &driver_names);
  m.def(
      "set_wait_check",
      [](const py::object& check) {
        python_wait_check() = check.is_none() ? py::object() : check;
        set_wait_check(check.is_none() ? nullptr : &call_wait_check);
      },
      "What Program::check_wait() calls; None: nothing. What it raises leaves the wait.");
  m.def(
      "create",
      [](const std::string& name, int device_count, int64_t memory_bytes, Launch launch, uint64_t chaos_seed,
         bool protect) {
        const DriverConfig config{device_count, memory_bytes, launch, chaos_seed, protect};
        return std::unique_ptr<Driver, Unlocked>(
            unlocked([&] { return create_driver(name, config).release(); }));
      },
      py::arg("name"), py::arg("device_count"), py::arg("memory_bytes"),
      py::arg("launch") = DriverConfig{}.launch, py::arg("chaos_seed") = DriverConfig{}.chaos_seed,
      py::arg("protect") = DriverConfig{}.protect);
}

}  // namespace loom::testing
