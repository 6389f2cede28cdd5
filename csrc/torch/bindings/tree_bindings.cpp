// What Inductor's trees of graphs do with the results of graphs, by the names that torch._C has for it in
// CUDA builds: they make tensors over memory of a pool, and take the memory of tensors that a later run
// overwrites.
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>
#include <vector>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/core/device_memory.h"
#include "torch/core/device_type.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// Storages are passed by their addresses, a Python storage's `_cdata`.
c10::StorageImpl& storage_at(uintptr_t address) { return *reinterpret_cast<c10::StorageImpl*>(address); }

// `addresses` has None where a value has no memory of its own; no index asks for it.
bool are_at(const py::list& values, const py::list& addresses, const std::vector<size_t>& indices) {
  for (const size_t i : indices) {
    const auto* const address = reinterpret_cast<const void*>(addresses[i].cast<uintptr_t>());
    if (values[i].cast<at::Tensor>().const_data_ptr() != address) return false;
  }
  return true;
}

at::Tensor tensor_over(const py::dict& metadata, c10::Storage storage) {
  const py::object dtype = metadata["dtype"];
  TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "metadata['dtype'] must be a torch.dtype, got ",
                   py::str(py::type::of(dtype)).cast<std::string>());
  const auto type = c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), own_keys(), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(metadata["size"].cast<std::vector<int64_t>>(),
                                                      metadata["stride"].cast<std::vector<int64_t>>(),
                                                      metadata["storage_offset"].cast<int64_t>());
  return tensor;
}

// The storage stays, and does not free the memory again.
void free_memory_of(uintptr_t address) {
  c10::StorageImpl& storage = storage_at(address);
  void* const memory = storage._mutable_data_ptr_no_checks().get();
  TORCH_CHECK(storage._mutable_data_ptr_no_checks().compare_exchange_deleter(&free_device_memory,
                                                                             &c10::detail::deleteNothing),
              "Expected standard deleter");
  free_device_memory(memory);
}

}  // namespace

void bind_trees(py::module_& m) {
  m.def("tensors_are_at", guarded(are_at), py::arg("values"), py::arg("addresses"), py::arg("indices"));
  m.def("tensor_over", guarded(tensor_over), py::arg("metadata"), py::arg("storage"));
  m.def("free_memory_of", guarded(free_memory_of), py::arg("storage"));
  // From now on each use of the memory raises this error.
  m.def("forbid_tensor", guarded([](const at::Tensor& tensor, std::string error) {
          tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
              std::move(error));
        }),
        py::arg("tensor"), py::arg("error"));
  m.def("forbid_storage", guarded([](uintptr_t address, std::string error) {
          storage_at(address).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(error));
        }),
        py::arg("storage"), py::arg("error"));
  m.def("permit_storage",
        guarded([](uintptr_t address) { storage_at(address).clear_data_ptr_access_error_msg_(); }),
        py::arg("storage"));
}

}  // namespace loom::glue
