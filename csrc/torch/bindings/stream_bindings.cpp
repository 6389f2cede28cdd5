#include "torch/bindings/stream_bindings.h"

#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/hooks/priorities.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// A stream as torch.Stream's constructor takes it.
py::tuple handle(int64_t device, int64_t stream) {
  return py::make_tuple(stream, device, static_cast<int64_t>(device_type()));
}

}  // namespace

c10::Event& event_of(const py::object& object) {
  TORCH_CHECK_TYPE(THPEvent_Check(object.ptr()), "expected a torch.Event");
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

void bind_streams(py::module_& m) {
  m.def("current_stream", guarded([](int64_t index) {
          check_device_index(index);
          return handle(index, runtime::current_stream(static_cast<int>(index)));
        }));
  m.def("default_stream", guarded([](int64_t index) {
          check_device_index(index);
          return handle(index, 0);
        }));
  // (stream_id, device_index, device_type) of a native handle, or None.
  m.def("find_stream", guarded([](uintptr_t native_handle) -> py::object {
          const auto [device, stream] = devices().find_stream(reinterpret_cast<const void*>(native_handle));
          return device < 0 ? py::object(py::none()) : py::object(handle(device, stream));
        }));
  m.def("stream_priority", [](int64_t stream) { return runtime::Runtime::priority_of(stream); });
  m.def("highest_priority", &highest_priority);
  // torch.Event's own method refuses subclasses.
  m.def("elapsed_time_ms", guarded([](const py::object& start, const py::object& end) {
          return event_of(start).elapsedTime(event_of(end));
        }));
}

}  // namespace loom::glue
