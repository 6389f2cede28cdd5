#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <memory>
#include <optional>
#include <thread>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/python_line.h"
#include "torch/kernels/factories.h"
#include "torch/launch/error_text.h"
#include "torch/launch/grid_launch.h"
#include "torch/launch/grid_watch.h"
#include "torch/launch/launch_note.h"
#include "torch/loans/lend.h"
#include "torch/loans/operand.h"
#include "torch/memory/lazy.h"
#include "torch/memory/worlds.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// What torch_loom/kernels/host_compiler.py compiles. `addresses`: where each tensor begins. The
// meaning of `numbers` and `scalars` is between it and the code that it generates. Returns null or what went
// wrong, text that lives until the thread's next call.
using Function = const char* (*)(void* const* addresses, const int64_t* numbers, const char* scalars);

struct Launch {
  Function function;
  std::string name, scalars, line;
  std::vector<void*> addresses;
  std::vector<int64_t> numbers;
  // Of a kernel of CUDA C++ that is watched: where to say what it has used.
  std::shared_ptr<WatchedIssue::Accesses> accesses;
  std::thread::id issuer = std::this_thread::get_id();

  void run() const {
    const WatchedRun watched(accesses.get());
    const char* error = function(addresses.data(), numbers.data(), scalars.data());
    if (error == nullptr) return;
    const bool is_late = std::this_thread::get_id() != issuer && !line.empty();
    TORCH_CHECK(false, "The compiled kernel '", name, "' failed: ", error,
                is_late ? "\n  issued at " + line : "");
  }
};

// Submits a kernel to the current stream of a device. The tensors are on it; the caller has the GIL released.
// `sizes`: of its grid and of its block, three numbers each, where it has these.
void submit(std::unique_ptr<Launch> work, int device, c10::ArrayRef<at::Tensor> tensors,
            const std::vector<bool>& is_written, c10::ArrayRef<int64_t> sizes = {}) {
  const char* name = work->name.c_str();
  const runtime::StreamRef stream = runtime::current_stream_of(device);
  c10::SmallVector<runtime::Operand, 8> operands, outputs;
  work->addresses.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    TORCH_CHECK(tensor.device() == c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)), name,
                ": expected tensor ", i, " on ", device_name(), ":", device, ", but it is on ",
                tensor.device());
    check_world(tensor, name);
    check_has_memory(tensor, name);
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    void* first = devices().engine_address(device_data(storage, is_written[i]));
    const int64_t offset = tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
    work->addresses.push_back(static_cast<char*>(first) + offset);
    operands.push_back(operand_of(tensor, is_written[i]));
    if (is_written[i]) outputs.push_back(operands.back());
  }
  if (!translated([&] { return runtime::runs_in_place(stream); })) work->line = python_line();
  // Kernels of CUDA C++ have a grid.
  const bool is_watched = !sizes.empty() && are_grids_watched.load(std::memory_order_relaxed) &&
                          devices().device(device).runs_kernels() && !runtime::is_captured(stream);
  const std::optional<WatchedIssue> issue =
      is_watched ? std::optional<WatchedIssue>(std::in_place) : std::nullopt;
  if (is_watched) work->accesses = issue->accesses();
  // The driver, a graph or a refusal releases it.
  Launch* const context = work.release();
  // The tape reads the name after a kernel that ran in this thread has been released.
  const runtime::OpRecord& op = runtime::intern_op(context->name);
  driver::Kernel kernel{op.full_name,
                        [](void* work, driver::Stream) { static_cast<const Launch*>(work)->run(); },
                        [](void* work) { delete static_cast<const Launch*>(work); }, context};
  if (!devices().device(device).runs_kernels()) kernel.run = [](void*, driver::Stream) {};
  c10::SmallVector<runtime::Attribute, 2> attributes;
  for (size_t i = 0; i < sizes.size() / 3; ++i) {
    attributes.push_back({i == 0 ? "grid" : "block",
                          runtime::Attribute::Kind::kIntegers,
                          3,
                          {.integers = sizes.data() + 3 * i},
                          0});
  }
  const runtime::KernelRecord record{&op, operands, attributes};
  // What a watched launch has used is known once it has run.
  const auto submit = is_watched ? &runtime::submit_and_wait : &runtime::submit;
  translated([&] { submit(stream, kernel, record, outputs); });
}

void launch(uintptr_t function, const std::string& name, int device, const std::vector<at::Tensor>& tensors,
            const std::vector<bool>& is_written, std::vector<int64_t> numbers, const py::bytes& scalars,
            const std::vector<int64_t>& sizes) {
  TORCH_CHECK_VALUE(is_written.size() == tensors.size(), "launch_compiled: ", tensors.size(), " tensors but ",
                    is_written.size(), " flags");
  TORCH_CHECK_VALUE(sizes.empty() || sizes.size() == 6,
                    "launch_compiled: sizes must be those of a grid and of a block, six numbers, got ",
                    sizes.size());
  check_device_index(device);
  auto work = std::make_unique<Launch>();
  work->function = reinterpret_cast<Function>(function);
  work->name = name;
  work->scalars = scalars;
  work->numbers = std::move(numbers);
  const py::gil_scoped_release no_gil;
  submit(std::move(work), device, tensors, is_written, sizes);
}

// A kernel that Inductor generated. Called as Inductor calls one: tensors, then numbers.
class CompiledKernel {
 public:
  // `is_written`: of each tensor. `are_real`: of each number. `library` has the function.
  CompiledKernel(std::string name, uintptr_t function, std::vector<bool> is_written,
                 std::vector<bool> are_real, py::object library)
      : name_(std::move(name)),
        function_(reinterpret_cast<Function>(function)),
        is_written_(std::move(is_written)),
        are_real_(std::move(are_real)),
        library_(std::move(library)) {}

  const std::string& name() const { return name_; }

  void call(const py::args& arguments) const {
    const size_t num_tensors = is_written_.size();
    TORCH_CHECK_TYPE(arguments.size() == num_tensors + are_real_.size(), name_, " takes ", num_tensors,
                     " tensors and ", are_real_.size(), " numbers, but got ", arguments.size(), " arguments");
    c10::SmallVector<at::Tensor, 8> tensors;
    for (size_t i = 0; i < num_tensors; ++i) {
      PyObject* const argument = PyTuple_GET_ITEM(arguments.ptr(), i);
      TORCH_CHECK_TYPE(THPVariable_Check(argument), name_, ": argument ", i, " is no tensor");
      tensors.push_back(THPVariable_Unpack(argument));
    }
    auto work = std::make_unique<Launch>();
    work->function = function_;
    work->name = name_;
    work->numbers.reserve(are_real_.size());
    for (size_t i = 0; i < are_real_.size(); ++i)
      work->numbers.push_back(number(PyTuple_GET_ITEM(arguments.ptr(), num_tensors + i), are_real_[i]));
    const int device = device_of(tensors);
    const py::gil_scoped_release no_gil;
    for (size_t i = 0; i < num_tensors; ++i) {
      // What Inductor makes a scalar of on the CPU may be a tensor without dimensions here.
      if (tensors[i].is_cpu() && tensors[i].dim() == 0 && !is_written_[i])
        tensors[i] = tensors[i].to(c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)));
    }
    submit(std::move(work), device, tensors, is_written_);
  }

 private:
  static int64_t number(PyObject* value, bool is_real) {
    const int64_t bits = is_real ? std::bit_cast<int64_t>(PyFloat_AsDouble(value)) : PyLong_AsLongLong(value);
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return bits;
  }

  int device_of(c10::ArrayRef<at::Tensor> tensors) const {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.device().type() == device_type()) return tensor.device().index();
    }
    const std::string text =
        name_ + ": none of its tensors is on a " + std::string(device_name()) + " device";
    const py::object type = py::module_::import("torch_loom.errors").attr("DeviceTypeError");
    const py::object error = type(text);  // under the name cuda of another type
    PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
    throw py::error_already_set();
  }

  const std::string name_;
  const Function function_;
  const std::vector<bool> is_written_, are_real_;
  const py::object library_;
};

// A kernel of torch_loom/kernels, launched as a grid of programs.
class ProgramKernel {
 public:
  // `parameters`: a letter for each argument: p an address, i a whole number, f, d, h, b a float32, float64,
  // float16, bfloat16. `is_written`: of each address. `is_watched`: it reports each access. `number`: the
  // cost model's of it; `deciding`: the places of the whole numbers that its cost depends on. `num_threads`:
  // of a program on a GPU. `library` has the function.
  ProgramKernel(std::string name, uintptr_t function, std::string parameters, std::vector<bool> is_written,
                size_t block_bytes, bool is_watched, int64_t number, std::vector<int> deciding,
                int64_t num_threads, py::object library)
      : parameters_(std::move(parameters)), library_(std::move(library)) {
    kernel_ = std::make_shared<GridKernel>();
    kernel_->name = std::move(name);
    kernel_->function = reinterpret_cast<GridFunction>(function);
    kernel_->is_written = std::move(is_written);
    kernel_->block_bytes = block_bytes;
    kernel_->is_watched = is_watched;
    kernel_->number = number;
    kernel_->deciding = std::move(deciding);
    kernel_->num_threads = num_threads;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i] == 'p') places_.push_back(static_cast<int>(i));
    }
  }

  const std::string& name() const { return kernel_->name; }

  // `arguments`: as many as there are letters.
  void launch(int device, int64_t x, int64_t y, int64_t z, const py::tuple& arguments) const {
    constexpr int64_t kMostX = 2147483647, kMostYZ = 65535;  // CUDA's
    TORCH_CHECK_VALUE(x >= 0 && y >= 0 && z >= 0 && x <= kMostX && y <= kMostYZ && z <= kMostYZ, name(),
                      ": a grid of (", x, ", ", y, ", ", z, ") programs: a GPU takes up to (", kMostX, ", ",
                      kMostYZ, ", ", kMostYZ, ")");
    TORCH_CHECK_TYPE(arguments.size() == parameters_.size(), name(), " takes ", parameters_.size(),
                     " arguments, but got ", arguments.size());
    if (x * y * z == 0) return;
    std::vector<int64_t> numbers(parameters_.size());
    std::vector<GridAddress> addresses;
    addresses.reserve(places_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      PyObject* const argument = PyTuple_GET_ITEM(arguments.ptr(), i);
      if (parameters_[i] == 'p') {
        addresses.push_back(address(argument, i));
      } else {
        numbers[i] = number(argument, parameters_[i]);
      }
    }
    const py::gil_scoped_release no_gil;
    submit_grid(kernel_, device, {x, y, z}, std::move(numbers), places_, std::move(addresses));
  }

 private:
  GridAddress address(PyObject* each, size_t place) const {
    if (THPVariable_Check(each)) return {0, THPVariable_Unpack(each)};
    if (each == Py_None) return {};
    if (PyLong_Check(each)) {
      const unsigned long long value = PyLong_AsUnsignedLongLong(each);
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      return {static_cast<int64_t>(value), {}};
    }
    const py::handle object(each);
    // As Triton's wrapper that gives a tensor another dtype.
    if (py::hasattr(object, "base")) {
      const py::object base = object.attr("base");
      if (THPVariable_Check(base.ptr())) return {0, THPVariable_Unpack(base.ptr())};
    }
    if (py::hasattr(object, "data_ptr")) return {object.attr("data_ptr")().cast<int64_t>(), {}};
    TORCH_CHECK_TYPE(false, name(), ": argument ", place, " is a ", Py_TYPE(each)->tp_name,
                     ", where an address is expected: a tensor, an int, None, or an object with data_ptr()");
  }

  static int64_t number(PyObject* item, char letter) {
    int64_t bits = 0;
    if (letter == 'i') {
      bits = PyLong_AsLongLong(item);
      if (PyErr_Occurred() != nullptr && PyLong_Check(item)) {
        PyErr_Clear();
        bits = static_cast<int64_t>(PyLong_AsUnsignedLongLong(item));
      }
    } else {
      const double value = PyFloat_AsDouble(item);
      if (letter == 'd') bits = std::bit_cast<int64_t>(value);
      if (letter == 'f') bits = std::bit_cast<int32_t>(static_cast<float>(value));
      if (letter == 'h') bits = c10::Half(static_cast<float>(value)).x;
      if (letter == 'b') bits = c10::BFloat16(static_cast<float>(value)).x;
    }
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return bits;
  }

  std::shared_ptr<GridKernel> kernel_;
  const std::string parameters_;
  std::vector<int> places_;
  const py::object library_;
};

c10::SmallVector<int64_t, 6> integers(const py::tuple& values) {
  c10::SmallVector<int64_t, 6> found;
  for (size_t i = 0; i < values.size(); ++i) {
    found.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(values.ptr(), i)));
    if (found.back() == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return found;
}

// What the kernel that this thread is issuing has used so far, where it says so itself, as operands on the
// tape are: bytes, once or in rows.
py::object kernel_accesses() {
  const WatchedIssue::Accesses* const accesses = WatchedIssue::of_this_thread();
  if (accesses == nullptr) return py::none();
  py::list found;
  for (const kernel_checks::Piece& piece : *accesses) {
    const auto [rows, groups] = piece.counts;
    found.append(py::make_tuple(piece.begin, py::make_tuple(piece.bytes, rows, groups),
                                py::make_tuple(1, piece.steps[0], piece.steps[1]), 1, piece.is_written));
  }
  return found;
}

// Of launches of CUDA C++, for as long as the process lives.
py::object& launch_callback() {
  static auto* const callback = new py::object;
  return *callback;
}
void listen_to_launches(py::object callback) {
  launch_callback() = std::move(callback);
  set_launch_listener([](const LaunchNote& launch) {
    const py::gil_scoped_acquire gil;
    const auto triple = [](const std::array<int64_t, 3>& xyz) {
      return py::make_tuple(xyz[0], xyz[1], xyz[2]);
    };
    launch_callback()(launch.device, launch.name, launch.path, triple(launch.grid), triple(launch.block),
                      launch.shared_bytes, launch.is_checked, py::tuple(py::cast(launch.sizes)));
  });
}

// What generated code makes its buffers with: torch.empty_strided without its parsing of arguments.
at::Tensor make_buffer(int device, const py::tuple& sizes, const py::tuple& strides, at::ScalarType dtype) {
  return empty_strided(integers(sizes), integers(strides), dtype, std::nullopt,
                       c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)), std::nullopt);
}

using numerics::tensor_core::BlockRules;

// Formats of the operands, whether a group of warps multiplies, whether it goes through halves; then the
// instruction: the formats it takes, fraction bits, kept bits, products of a step and its depth.
using BlockRow = std::tuple<int, int, bool, bool, int, int, int, int, int, int>;
std::shared_ptr<BlockRules> made_block_rules(const std::vector<BlockRow>& rows) {
  using numerics::tensor_core::Operand;
  auto rules = std::make_shared<BlockRules>();
  for (const auto& [left, right, is_group, is_through_halves, a, b, fraction, kept, step, depth] : rows) {
    rules->set(left, right, is_group,
               {{static_cast<Operand>(a), static_cast<Operand>(b), false, fraction, kept, step},
                depth,
                is_through_halves});
  }
  return rules;
}

// Returns those that were set.
std::shared_ptr<BlockRules> swap_block_rules(std::shared_ptr<BlockRules> rules) {
  return std::const_pointer_cast<BlockRules>(set_block_rules(std::move(rules)));
}

}  // namespace

void bind_compiled_kernels(py::module_& m) {
  m.def("launch_compiled", guarded(launch), py::arg("function"), py::arg("name"), py::arg("device"),
        py::arg("tensors"), py::arg("is_written"), py::arg("numbers"), py::arg("scalars"),
        py::arg("sizes") = std::vector<int64_t>{});
  py::class_<CompiledKernel>(m, "CompiledKernel")
      .def(py::init<std::string, uintptr_t, std::vector<bool>, std::vector<bool>, py::object>(),
           py::arg("name"), py::arg("function"), py::arg("is_written"), py::arg("are_real"),
           py::arg("library"))
      .def_property_readonly("name", &CompiledKernel::name)
      .def("__call__", guarded(&CompiledKernel::call));
  py::class_<ProgramKernel>(m, "ProgramKernel")
      .def(py::init<std::string, uintptr_t, std::string, std::vector<bool>, size_t, bool, int64_t,
                    std::vector<int>, int64_t, py::object>(),
           py::arg("name"), py::arg("function"), py::arg("parameters"), py::arg("is_written"),
           py::arg("block_bytes"), py::arg("is_watched"), py::arg("number"), py::arg("deciding"),
           py::arg("num_threads"), py::arg("library"))
      .def_property_readonly("name", &ProgramKernel::name)
      .def("launch", guarded(&ProgramKernel::launch), py::arg("device"), py::arg("x"), py::arg("y"),
           py::arg("z"), py::arg("arguments"));
  m.def("cuda_error_text", &error_text, py::arg("error"));
  m.def("set_kernel_time_limit", guarded(set_time_limit), py::arg("seconds"));
  py::class_<BlockRules, std::shared_ptr<BlockRules>>(m, "BlockRules")
      .def(py::init(&made_block_rules), py::arg("rows"));
  m.def("set_block_rules", swap_block_rules, py::arg("rules"));
  m.def("watch_kernels", guarded(watch_grids));
  m.def("kernel_accesses", kernel_accesses);
  m.def("listen_to_launches", listen_to_launches);
  m.def("empty_strided", guarded(make_buffer), py::arg("device"), py::arg("sizes"), py::arg("strides"),
        py::arg("dtype"));
}

}  // namespace loom::glue
