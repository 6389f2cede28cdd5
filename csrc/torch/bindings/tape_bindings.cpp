#include "torch/bindings/tape_bindings.h"

#include <torch/csrc/Exceptions.h>

#include <mutex>
#include <utility>
#include <vector>

#include "torch/core/device.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

using runtime::Command;
using runtime::CommandKind;

// What Python may refuse, or wants to know the place of: it is called at once. All else is only noted. Memory
// is freed and events are destroyed anywhere: within Python's own collector, under locks, without Python's
// lock.
bool is_launch(CommandKind kind) {
  switch (kind) {
    case CommandKind::kKernel:
    case CommandKind::kCopy:
    case CommandKind::kFill:
    case CommandKind::kOutput:
    case CommandKind::kAllocate:
    case CommandKind::kFallback:
      return true;
    default:
      return false;
  }
}

struct Note {
  CommandKind kind;
  int device;
  int64_t stream;
  uintptr_t event, address;
  size_t bytes;
  bool is_captured;
};

py::int_ to_python(const void* address) { return py::int_(reinterpret_cast<uintptr_t>(address)); }

py::tuple to_python(const int64_t* values, int32_t count) {
  py::tuple out(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(out.ptr(), i, PyLong_FromLongLong(values[i]));
  }
  return out;
}

py::tuple range(const void* address, size_t bytes, bool is_written) {
  return py::make_tuple(to_python(address), py::make_tuple(bytes), py::make_tuple(1), 1, is_written);
}

bool is_host_memory(const void* address) {
  return devices().driver().locate(address).kind == driver::AddressKind::kUnknown;
}

// (address, sizes, strides, item_bytes, is_written) of each, without memory of the host that no device
// reaches. Of a fallback: the dtype's name, if that is the reason.
py::tuple operands_of(const Command& command) {
  switch (command.kind) {
    case CommandKind::kKernel: {
      py::tuple out(command.num_operands);
      for (size_t i = 0; i < command.num_operands; ++i) {
        const runtime::Operand& operand = command.operands[i];
        out[i] = py::make_tuple(to_python(operand.address), to_python(operand.sizes, operand.num_dims),
                                to_python(operand.strides, operand.num_dims), operand.item_bytes,
                                operand.is_written);
      }
      return out;
    }
    case CommandKind::kCopy: {
      py::list out;
      if (command.bytes == 0) return py::tuple(0);
      if (!is_host_memory(command.address)) out.append(range(command.address, command.bytes, true));
      if (!is_host_memory(command.source)) out.append(range(command.source, command.bytes, false));
      return py::tuple(out);
    }
    case CommandKind::kFill:
    case CommandKind::kOutput:
      return py::make_tuple(range(command.address, command.bytes, true));
    case CommandKind::kFallback:
      return command.dtype == nullptr ? py::tuple(0) : py::make_tuple(command.dtype);
    default:
      return py::tuple(0);
  }
}

// A copy to memory that is not pinned has finished when it returns.
bool host_waits(const Command& command) {
  return command.kind == CommandKind::kCopy && command.bytes != 0 && is_host_memory(command.address);
}

class PythonReader final : public runtime::TapeReader {
 public:
  explicit PythonReader(py::object callback) : callback_(std::move(callback)) {}
  ~PythonReader() override {
    if (Py_IsInitialized() == 0) {
      callback_.release();  // leaked with the interpreter
      return;
    }
    const py::gil_scoped_acquire gil;
    callback_ = py::object();
  }

  void read(const Command& command) override {
    if (is_launch(command.kind)) {
      call(command);
    } else {
      const std::lock_guard<std::mutex> lock(mutex_);
      notes_.push_back({command.kind, command.device, command.stream,
                        reinterpret_cast<uintptr_t>(command.event),
                        reinterpret_cast<uintptr_t>(command.address), command.bytes, command.is_captured});
    }
  }

  py::list take_notes() {
    std::vector<Note> notes;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      notes.swap(notes_);
    }
    py::list out(notes.size());
    for (size_t i = 0; i < notes.size(); ++i) {
      const Note& note = notes[i];
      out[i] = py::make_tuple(static_cast<int>(note.kind), note.device, note.stream, note.event, note.address,
                              note.bytes, note.is_captured);
    }
    return out;
  }

 private:
  // What the callback itself causes (a finalizer that runs ops, say) is not told to it.
  class Reading {
   public:
    Reading() { is_reading = true; }
    ~Reading() { is_reading = false; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
  };
  static inline thread_local bool is_reading = false;

  void call(const Command& command) {
    if (is_reading || Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    const Reading reading;
    try {
      callback_(static_cast<int>(command.kind), command.device, command.stream, command.name,
                operands_of(command), to_python(command.address), command.bytes, command.is_captured,
                host_waits(command));
    } catch (py::error_already_set& error) {
      // PyTorch carries its own class between threads, and gives it back to Python as it is.
      error.restore();
      python_error kept;
      kept.persist();
      throw kept;
    }
  }

  py::object callback_;
  std::mutex mutex_;
  std::vector<Note> notes_;
};

// A reader that is attached by name.
class TapeReader {
 public:
  explicit TapeReader(py::object callback) : reader_(std::make_shared<PythonReader>(std::move(callback))) {}
  void attach() {
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::attach(reader_); });
  }
  void detach() {
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::detach(reader_); });
  }
  py::list take_notes() { return reader_->take_notes(); }

 private:
  const std::shared_ptr<PythonReader> reader_;
};

// Tells Python at once of what torch.cuda's _gpu_trace tells, which is neither refused nor asked about:
// callback(kind, first, second), the addresses of event and stream, or of memory.
class TraceReader final : public runtime::TapeReader {
 public:
  explicit TraceReader(py::object callback) : callback_(std::move(callback)) {}

  void read(const Command& command) override {
    const bool is_notified = is_event(command.kind) || is_stream(command.kind) ||
                             command.kind == CommandKind::kSynchronizeDevice || is_device_memory(command);
    if (!is_notified || is_reading || Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    // A free may come while an exception is on its way.
    const py::error_scope pending;
    is_reading = true;
    try {
      callback_(static_cast<int>(command.kind), reinterpret_cast<uintptr_t>(first(command)),
                reinterpret_cast<uintptr_t>(command.stream < 0 ? nullptr : stream(command)));
    } catch (py::error_already_set& error) {
      // Whoever pressed Ctrl-C meant the program, which hears of it once the command is done.
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
      } else {
        error.discard_as_unraisable("a callback of _gpu_trace");
      }
    }
    is_reading = false;
  }

 private:
  static bool is_event(CommandKind kind) {
    switch (kind) {
      case CommandKind::kCreateEvent:
      case CommandKind::kDestroyEvent:
      case CommandKind::kRecordEvent:
      case CommandKind::kWaitEvent:
      case CommandKind::kSynchronizeEvent:
        return true;
      default:
        return false;
    }
  }
  static bool is_stream(CommandKind kind) {
    return kind == CommandKind::kCreateStream || kind == CommandKind::kSynchronizeStream;
  }
  static bool is_device_memory(const Command& command) {
    return command.device >= 0 &&
           (command.kind == CommandKind::kAllocate || command.kind == CommandKind::kFree);
  }
  static const void* stream(const Command& command) {
    return devices().stream(command.device, command.stream);
  }
  static const void* first(const Command& command) {
    if (is_event(command.kind)) return command.event;
    if (is_stream(command.kind)) return stream(command);
    return command.address;
  }

  static inline thread_local bool is_reading = false;  // what a callback causes is not told to it
  const py::object callback_;
};

// For the life of the process: callbacks cannot be taken back.
void attach_trace(py::object callback) {
  const auto reader = std::make_shared<TraceReader>(std::move(callback));
  static auto* kept = new std::vector<std::shared_ptr<TraceReader>>;
  kept->push_back(reader);
  const py::gil_scoped_release no_gil;
  translated([&] { runtime::tape::attach(reader); });
}

constexpr std::pair<const char*, CommandKind> kKinds[] = {
    {"KERNEL", CommandKind::kKernel},
    {"COPY", CommandKind::kCopy},
    {"FILL", CommandKind::kFill},
    {"RECORD_EVENT", CommandKind::kRecordEvent},
    {"WAIT_EVENT", CommandKind::kWaitEvent},
    {"ALLOCATE", CommandKind::kAllocate},
    {"FREE", CommandKind::kFree},
    {"RECORD_STREAM", CommandKind::kRecordStream},
    {"SYNCHRONIZE_STREAM", CommandKind::kSynchronizeStream},
    {"SYNCHRONIZE_EVENT", CommandKind::kSynchronizeEvent},
    {"SYNCHRONIZE_DEVICE", CommandKind::kSynchronizeDevice},
    {"REPLAY", CommandKind::kReplay},
    {"OUTPUT", CommandKind::kOutput},
    {"QUERY_STREAM", CommandKind::kQueryStream},
    {"QUERY_EVENT", CommandKind::kQueryEvent},
    {"DESTROY_EVENT", CommandKind::kDestroyEvent},
    {"CREATE_EVENT", CommandKind::kCreateEvent},
    {"CREATE_STREAM", CommandKind::kCreateStream},
    {"FALLBACK", CommandKind::kFallback},
};

}  // namespace

void bind_tape(py::module_& m) {
  py::class_<TapeReader> reader(m, "TapeReader");
  reader.def(py::init<py::object>(), py::arg("callback"))
      .def("attach", torch::wrap_pybind_function([](TapeReader& self) { self.attach(); }))
      .def("detach", torch::wrap_pybind_function([](TapeReader& self) { self.detach(); }))
      .def("take_notes", &TapeReader::take_notes);
  m.def("attach_trace", torch::wrap_pybind_function(attach_trace));
  for (const auto& [name, kind] : kKinds) reader.attr(name) = static_cast<int>(kind);
}

}  // namespace loom::glue
