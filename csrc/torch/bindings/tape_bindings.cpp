#include "torch/bindings/tape_bindings.h"

#include <pybind11/complex.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <complex>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/simulated_clock.h"
#include "runtime/worlds.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/dispatch/implicit_sync.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

using runtime::Command;
using runtime::CommandKind;

// Delivered at once: Python may veto these or needs the call site. All else is only noted. Memory is freed
// and events are destroyed anywhere: within Python's own collector, under locks, without Python's lock.
constexpr runtime::CommandKinds kLaunches =
    runtime::kinds_of({CommandKind::kKernel, CommandKind::kCopy, CommandKind::kFill, CommandKind::kAllocate,
                       CommandKind::kFallback});
constexpr runtime::CommandKinds kNotes = runtime::kAllKinds & ~kLaunches;

constexpr bool is_launch(CommandKind kind) { return (kLaunches >> static_cast<int>(kind) & 1) != 0; }

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

bool is_host_memory(const void* address) {
  return runtime::locate(address).kind == driver::AddressKind::kUnknown;
}

bool has_elements(const runtime::Operand& operand) {
  return std::all_of(operand.sizes, operand.sizes + operand.num_dims, [](int64_t size) { return size != 0; });
}

// (address, sizes, strides, item_bytes, is_written), and the dtype's name where it is asked for.
py::tuple to_python(const runtime::Operand& operand, bool with_dtype) {
  py::tuple out(with_dtype ? 6 : 5);
  out[0] = to_python(operand.address);
  out[1] = to_python(operand.sizes, operand.num_dims);
  out[2] = to_python(operand.strides, operand.num_dims);
  out[3] = py::int_(operand.item_bytes);
  out[4] = py::bool_(operand.is_written);
  if (with_dtype) {
    const auto dtype = static_cast<c10::ScalarType>(operand.dtype);
    out[5] = operand.dtype < 0 ? py::str("") : py::str(std::string(c10::getDtypeNames(dtype).first));
  }
  return out;
}

py::tuple to_python(std::span<const runtime::Operand> operands) {
  py::tuple out(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) out[i] = to_python(operands[i], /*with_dtype=*/true);
  return out;
}

template <typename T>
py::tuple to_python_list(const T* values, size_t count) {
  py::tuple out(count);
  for (size_t i = 0; i < count; ++i) out[i] = py::cast(values[i]);
  return out;
}

py::object to_python(const runtime::Attribute& attribute) {
  using Kind = runtime::Attribute::Kind;
  switch (attribute.kind) {
    case Kind::kNone:
      return py::none();
    case Kind::kBool:
      return py::bool_(attribute.integer != 0);
    case Kind::kInteger:
      return py::int_(attribute.integer);
    case Kind::kReal:
      return py::float_(attribute.real);
    case Kind::kComplex:
      return py::cast(std::complex<double>(attribute.real, attribute.imaginary));
    case Kind::kBools: {
      py::tuple out(attribute.count);
      for (size_t i = 0; i < attribute.count; ++i) out[i] = py::bool_(attribute.integers[i] != 0);
      return out;
    }
    case Kind::kIntegers:
      return to_python_list(attribute.integers, attribute.count);
    case Kind::kReals:
      return to_python_list(attribute.reals, attribute.count);
    case Kind::kText:
      return py::str(attribute.text, attribute.count);
  }
  return py::none();
}

py::dict to_python(std::span<const runtime::Attribute> attributes) {
  py::dict out;
  for (const runtime::Attribute& attribute : attributes) out[attribute.name] = to_python(attribute);
  return out;
}

// Those of a kernel that have elements; of a copy, bytes of the device and of pinned memory. Of a fallback:
// the dtype's name, if that is the reason.
py::tuple operands_of(const Command& command, bool with_dtypes) {
  py::list out;
  const int64_t size = static_cast<int64_t>(command.bytes);
  constexpr static int64_t kUnitStride = 1;
  const auto add_range = [&](const void* address, bool is_written) {
    out.append(to_python({address, &size, &kUnitStride, 1, 1, -1, is_written}, with_dtypes));
  };
  switch (command.kind) {
    case CommandKind::kKernel:
      for (const runtime::Operand& operand : command.inputs) {
        if (has_elements(operand)) out.append(to_python(operand, with_dtypes));
      }
      break;
    case CommandKind::kCopy:
      if (command.bytes == 0) break;
      if (!is_host_memory(command.address)) add_range(command.address, true);
      if (!is_host_memory(command.source)) add_range(command.source, false);
      break;
    case CommandKind::kFill:
      add_range(command.address, true);
      break;
    case CommandKind::kFallback:
      if (command.dtype != nullptr) out.append(command.dtype);
      break;
    default:
      break;
  }
  return py::tuple(out);
}

// A copy to memory that is not pinned has finished when it returns.
bool host_waits(const Command& command) {
  return command.kind == CommandKind::kCopy && command.bytes != 0 && is_host_memory(command.address);
}

class PythonReader final : public runtime::TapeReader {
 public:
  PythonReader(py::object callback, py::object ended, bool with_dtypes)
      : runtime::TapeReader(kLaunches | kNotes,
                            ended.is_none() ? 0 : runtime::kinds_of({CommandKind::kKernel})),
        callback_(std::move(callback)),
        ended_(std::move(ended)),
        with_dtypes_(with_dtypes) {}
  ~PythonReader() override {
    if (Py_IsInitialized() == 0) {
      callback_.release();  // leaked with the interpreter
      ended_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    callback_ = py::object();
    ended_ = py::object();
  }

  void end(const Command& command) override {
    call([&] {
      const py::object shape_class =
          command.op == nullptr ? py::none() : py::object(py::str(runtime::name_of(command.op->shape_class)));
      ended_(command.device, command.stream, command.name, shape_class, to_python(command.inputs),
             to_python(command.outputs), to_python(command.attributes), command.is_captured,
             command.has_failed);
    });
  }

  void begin(const Command& command) override {
    if (is_launch(command.kind)) {
      call([&] {
        callback_(static_cast<int>(command.kind), command.device, command.stream, command.name,
                  operands_of(command, with_dtypes_), to_python(command.address), command.bytes,
                  command.is_captured, host_waits(command));
      });
    } else {
      const std::lock_guard<std::mutex> lock(mutex_);
      notes_.push_back({command.kind, command.device, command.stream,
                        reinterpret_cast<uintptr_t>(command.event),
                        reinterpret_cast<uintptr_t>(command.address), command.bytes, command.is_captured});
    }
  }

  // False: from now on no thread calls the callback; a running call goes on.
  void set_listening(bool listens) { listens_.store(listens); }

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
  // Commands that the callback itself issues (by a finalizer, say) are not reported to it.
  class Reading {
   public:
    Reading() { is_reading = true; }
    ~Reading() { is_reading = false; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
  };
  static inline thread_local bool is_reading = false;

  template <typename F>
  void call(const F& callback) const {
    if (is_reading || Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    // The reader may have been detached by Python that ran while this thread waited for its lock.
    if (!listens_.load()) return;
    const Reading reading;
    try {
      callback();
    } catch (py::error_already_set& error) {
      // PyTorch carries its own class between threads, and gives it back to Python as it is.
      error.restore();
      python_error kept;
      kept.persist();
      throw kept;
    }
  }

  py::object callback_, ended_;
  const bool with_dtypes_;
  std::atomic<bool> listens_{true};
  std::mutex mutex_;
  std::vector<Note> notes_;
};

// A reader that is attached by name.
class TapeReader {
 public:
  TapeReader(py::object callback, py::object ended, bool with_dtypes)
      : reader_(std::make_shared<PythonReader>(std::move(callback), std::move(ended), with_dtypes)) {}
  void attach() {
    reader_->set_listening(true);
    const py::gil_scoped_release no_gil;
    translated([&] {
      runtime::simulated::settle();
      runtime::tape::attach(reader_);
    });
  }
  void detach() {
    reader_->set_listening(false);
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::detach(reader_); });
  }
  py::list take_notes() { return reader_->take_notes(); }

 private:
  const std::shared_ptr<PythonReader> reader_;
};

// Reports to Python at once what torch.cuda's _gpu_trace reports; the callback cannot refuse a command. It is
// called as callback(kind, first, second): the addresses of event and stream, or of memory.
class TraceReader final : public runtime::TapeReader {
 public:
  explicit TraceReader(py::object callback) : runtime::TapeReader(kTraced), callback_(std::move(callback)) {}

  void begin(const Command& command) override {
    const bool is_host_memory = command.kind == CommandKind::kAllocate && command.device < 0;
    if (is_host_memory) return;
    tell(command.kind, first(command),
         command.stream < 0 ? nullptr : handle_of(command.device, command.stream));
  }

  // A stream's native handle; null for the default one, as CUDA's is.
  static const void* handle_of(int device, int64_t stream) {
    return stream == 0 ? nullptr : devices().stream(device, stream);
  }

  void tell(CommandKind kind, const void* first, const void* second) {
    if (is_reading || Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    // A free may come while an exception is on its way.
    const py::error_scope pending;
    is_reading = true;
    try {
      callback_(static_cast<int>(kind), reinterpret_cast<uintptr_t>(first),
                reinterpret_cast<uintptr_t>(second));
    } catch (py::error_already_set& error) {
      // Re-deliver Ctrl-C to the program after the command.
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
      } else {
        error.discard_as_unraisable("a callback of _gpu_trace");
      }
    }
    is_reading = false;
  }

 private:
  static constexpr runtime::CommandKinds kEvents =
      runtime::kinds_of({CommandKind::kCreateEvent, CommandKind::kDestroyEvent, CommandKind::kRecordEvent,
                         CommandKind::kWaitEvent, CommandKind::kSynchronizeEvent});
  static constexpr runtime::CommandKinds kStreams =
      runtime::kinds_of({CommandKind::kCreateStream, CommandKind::kSynchronizeStream});
  static constexpr runtime::CommandKinds kTraced =
      kEvents | kStreams |
      runtime::kinds_of({CommandKind::kSynchronizeDevice, CommandKind::kAllocate, CommandKind::kFree});

  static bool is_in(runtime::CommandKinds kinds, CommandKind kind) {
    return (kinds >> static_cast<int>(kind) & 1) != 0;
  }
  static const void* first(const Command& command) {
    if (is_in(kEvents, command.kind)) return command.event;
    if (is_in(kStreams, command.kind)) return handle_of(command.device, command.stream);
    return command.address;
  }

  static inline thread_local bool is_reading = false;  // in a callback, whose commands are not reported
  const py::object callback_;
};

std::vector<std::shared_ptr<TraceReader>>& trace_readers() {
  static auto* const kept = new std::vector<std::shared_ptr<TraceReader>>;
  return *kept;
}

// Waits inside an op or a copy are not on the tape, since the host does not wait if nothing is pending.
void trace_implicit_sync(int device) {
  const runtime::StreamRef stream = runtime::current_stream_of(device);
  for (const auto& reader : trace_readers()) {
    reader->tell(CommandKind::kSynchronizeStream, TraceReader::handle_of(device, stream.id), nullptr);
  }
}

// For the life of the process: callbacks cannot be taken back.
void attach_trace(py::object callback) {
  const auto reader = std::make_shared<TraceReader>(std::move(callback));
  trace_readers().push_back(reader);
  set_sync_listener(&trace_implicit_sync);
  const py::gil_scoped_release no_gil;
  translated([&] {
    runtime::simulated::settle();
    runtime::tape::attach(reader);
  });
}

// Sums up kernels without a lock: what a native reader costs, and how much a program moves.
class KernelCounter final : public runtime::TapeReader {
 public:
  explicit KernelCounter(bool counts_begins) : TapeReader(counts_begins ? kKernels : 0, kKernels) {}

  void begin(const Command&) override { add(begun_, 1); }
  // Op, class, stream, dtypes, sizes and strides of inputs and outputs, attributes: what a cost depends on.
  void end(const Command& command) override {
    if (command.has_failed || command.is_captured) return;
    add(ended_, 1);
    if (command.op != nullptr) add(classes_[static_cast<size_t>(command.op->shape_class)], 1);
    add(read_bytes_, bytes_of(command.inputs));
    add(written_bytes_, bytes_of(command.outputs));
    add(attributes_, static_cast<int64_t>(command.attributes.size()));
  }
  py::dict counts() const {
    py::dict out, classes;
    for (size_t i = 0; i < runtime::kNumShapeClasses; ++i) {
      const int64_t count = classes_[i].load(std::memory_order_relaxed);
      if (count != 0) classes[runtime::name_of(static_cast<runtime::ShapeClass>(i))] = count;
    }
    out["begun"] = begun_.load();
    out["ended"] = ended_.load();
    out["classes"] = classes;
    out["read_bytes"] = read_bytes_.load();
    out["written_bytes"] = written_bytes_.load();
    out["attributes"] = attributes_.load();
    return out;
  }

 private:
  static constexpr runtime::CommandKinds kKernels = runtime::kinds_of({CommandKind::kKernel});
  using Counter = std::atomic<int64_t>;
  // Several threads may lose counts to one another, which a locked instruction would cost too much to
  // prevent.
  static void add(Counter& counter, int64_t value) {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  // Of the elements, wherever they lie; broadcast ones once.
  static int64_t bytes_of(std::span<const runtime::Operand> operands) {
    int64_t bytes = 0;
    for (const runtime::Operand& operand : operands) {
      int64_t count = operand.item_bytes;
      for (int32_t i = 0; i < operand.num_dims; ++i) {
        if (operand.strides[i] != 0) count *= operand.sizes[i];
      }
      bytes += count;
    }
    return bytes;
  }

  Counter begun_{0}, ended_{0}, read_bytes_{0}, written_bytes_{0}, attributes_{0};
  std::array<Counter, runtime::kNumShapeClasses> classes_{};
};

class KernelCounterHandle {
 public:
  explicit KernelCounterHandle(bool counts_begins)
      : counter_(std::make_shared<KernelCounter>(counts_begins)) {}
  void attach() {
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::attach(counter_); });
  }
  void detach() {
    const py::gil_scoped_release no_gil;
    translated([&] { runtime::tape::detach(counter_); });
  }
  py::dict counts() const { return counter_->counts(); }

 private:
  const std::shared_ptr<KernelCounter> counter_;
};

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
    {"STORE_RESULT", CommandKind::kStoreResult},
    {"QUERY_STREAM", CommandKind::kQueryStream},
    {"QUERY_EVENT", CommandKind::kQueryEvent},
    {"DESTROY_EVENT", CommandKind::kDestroyEvent},
    {"CREATE_EVENT", CommandKind::kCreateEvent},
    {"CREATE_STREAM", CommandKind::kCreateStream},
    {"FALLBACK", CommandKind::kFallback},
};

}  // namespace

py::tuple operands_to_python(std::span<const runtime::Operand> operands) { return to_python(operands); }

py::dict attributes_to_python(std::span<const runtime::Attribute> attributes) {
  return to_python(attributes);
}

void bind_tape(py::module_& m) {
  py::class_<TapeReader> reader(m, "TapeReader");
  reader
      .def(py::init<py::object, py::object, bool>(), py::arg("callback"), py::arg("ended") = py::none(),
           py::arg("with_dtypes") = false)
      .def("attach", guarded([](TapeReader& self) { self.attach(); }))
      .def("detach", guarded([](TapeReader& self) { self.detach(); }))
      .def("take_notes", &TapeReader::take_notes);
  py::class_<KernelCounterHandle>(m, "KernelCounter")
      .def(py::init<bool>(), py::arg("counts_begins") = true)
      .def("attach", guarded([](KernelCounterHandle& self) { self.attach(); }))
      .def("detach", guarded([](KernelCounterHandle& self) { self.detach(); }))
      .def("counts", &KernelCounterHandle::counts);
  m.def("attach_trace", guarded(attach_trace));
  for (const auto& [name, kind] : kKinds) reader.attr(name) = static_cast<int>(kind);
}

}  // namespace loom::glue
