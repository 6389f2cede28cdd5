#include "torch/kernels/compiled_kernel.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <thread>

#include "torch/core/python_line.h"
#include "torch/dispatch/lend.h"
#include "torch/memory/lazy.h"
#include "torch/memory/worlds.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// What torch_loom/device/jiterator/host_compiler.py compiles. `addresses`: where each tensor begins. The
// meaning of `numbers` and `scalars` is between it and the code that it generates. Returns null or what went
// wrong, text that lives until the thread's next call.
using Function = const char* (*)(void* const* addresses, const int64_t* numbers, const char* scalars);

struct Launch {
  Function function;
  std::string name, scalars, line;
  std::vector<void*> addresses;
  std::vector<int64_t> numbers;
  std::thread::id issuer = std::this_thread::get_id();

  void run() const {
    const char* error = function(addresses.data(), numbers.data(), scalars.data());
    if (error == nullptr) return;
    const bool is_late = std::this_thread::get_id() != issuer && !line.empty();
    TORCH_CHECK(false, "The compiled kernel '", name, "' failed: ", error,
                is_late ? "\n  issued at " + line : "");
  }
};

runtime::Operand describe(const at::Tensor& tensor, bool is_written) {
  return {tensor.const_data_ptr(),
          tensor.sizes().data(),
          tensor.strides().data(),
          static_cast<int32_t>(tensor.dim()),
          static_cast<int32_t>(tensor.itemsize()),
          static_cast<int8_t>(tensor.scalar_type()),
          is_written};
}

void launch(uintptr_t function, const std::string& name, int device, const std::vector<at::Tensor>& tensors,
            const std::vector<bool>& is_written, std::vector<int64_t> numbers, const py::bytes& scalars) {
  TORCH_CHECK_VALUE(is_written.size() == tensors.size(), "launch_compiled: ", tensors.size(), " tensors but ",
                    is_written.size(), " flags");
  check_device_index(device);
  auto work = std::make_unique<Launch>();
  work->function = reinterpret_cast<Function>(function);
  work->name = name;
  work->scalars = scalars;
  work->numbers = std::move(numbers);
  const py::gil_scoped_release no_gil;
  const runtime::StreamRef stream = runtime::current_stream_of(device);
  std::vector<runtime::Operand> operands, outputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    TORCH_CHECK(tensor.device() == c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)), name,
                ": expected tensor ", i, " on ", device_name(), ":", device, ", but it is on ",
                tensor.device());
    check_world(tensor, name.c_str());
    check_has_memory(tensor, name.c_str());
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    void* first = devices().engine_address(device_data(storage, is_written[i]));
    const int64_t offset = tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
    work->addresses.push_back(static_cast<char*>(first) + offset);
    operands.push_back(describe(tensor, is_written[i]));
    if (is_written[i]) outputs.push_back(operands.back());
  }
  if (!translated([&] { return runtime::runs_in_place(stream); })) work->line = python_line();
  // The driver, a graph or a refusal releases it.
  Launch* const context = work.release();
  // The tape reads the name after a kernel that ran in this thread has been released.
  const runtime::OpRecord& op = runtime::intern_op(context->name);
  driver::Kernel kernel{op.full_name,
                        [](void* work, driver::Stream) { static_cast<const Launch*>(work)->run(); },
                        [](void* work) { delete static_cast<const Launch*>(work); }, context};
  if (!devices().device(device).runs_kernels()) kernel.run = [](void*, driver::Stream) {};
  translated([&] { runtime::submit(stream, kernel, {&op, operands, {}}, outputs); });
}

}  // namespace

void bind_compiled_kernels(py::module_& m) {
  m.def("launch_compiled", torch::wrap_pybind_function(launch), py::arg("function"), py::arg("name"),
        py::arg("device"), py::arg("tensors"), py::arg("is_written"), py::arg("numbers"), py::arg("scalars"));
}

}  // namespace loom::glue
