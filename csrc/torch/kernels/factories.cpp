// Making tensors, and changing their size and memory.
#include "torch/kernels/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/from_file.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include <algorithm>

#include "torch/core/device.h"
#include "torch/core/registration.h"
#include "torch/kernels/copy.h"
#include "torch/kernels/register.h"
#include "torch/loans/lend.h"
#include "torch/memory/allocator.h"
#include "torch/memory/lazy.h"
#include "torch/memory/resize.h"
#include "torch/memory/worlds.h"

namespace loom::glue {

namespace {

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided, "empty: layout ", *layout,
                              " is not implemented for ", device_name(), " devices");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms() promises that unwritten memory reads as NaN or the largest integer.
void fill_if_deterministic(const at::Tensor& tensor) {
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) [[unlikely]] {
    at::native::fill_empty_deterministic_(const_cast<at::Tensor&>(tensor));
  }
}

// Memory of new tensors of the current device, which begin_life() is called on next.
c10::Allocator* factory_allocator() {
  return new_storages_wait(runtime::current_device()) ? unmaterialised_allocator() : device_allocator();
}

void begin_life(const at::Tensor& tensor) {
  if (is_lazy(tensor.device().index()))
    make_unmaterialised(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  fill_if_deterministic(tensor);
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const CurrentDevice current(resolve_device(device).index());
  at::Tensor result =
      at::detail::empty_generic(size, factory_allocator(), own_keys(), c10::dtype_or_default(dtype), format);
  begin_life(result);
  return result;
}

}  // namespace

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const CurrentDevice current(resolve_device(device).index());
  at::Tensor result = at::detail::empty_strided_generic(size, stride, factory_allocator(), own_keys(),
                                                        c10::dtype_or_default(dtype));
  begin_life(result);
  return result;
}

namespace {

// The file's bytes, copied: a device has no memory that a file backs.
at::Tensor from_file(c10::string_view filename, std::optional<bool> shared, std::optional<int64_t> size,
                     std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  TORCH_CHECK_NOT_IMPLEMENTED(!shared.value_or(false),
                              "from_file: shared=True writes through to the file, "
                              "which memory of a ",
                              device_name(),
                              " device cannot; map the file on the CPU "
                              "and copy from there");
  const at::TensorOptions host = at::TensorOptions(at::kCPU).dtype(c10::dtype_or_default(dtype));
  return at::from_file(filename, false, size, host).to(resolve_device(device));
}

at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  // No memory at all: the ZeroTensor key marks it as zero for every op. The storage has a size for views.
  const c10::Device own = resolve_device(device);
  at::detail::check_size_nonnegative(size);
  const size_t bytes =
      at::detail::computeStorageNbytesContiguous(size, c10::elementSize(c10::dtype_or_default(dtype)));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             c10::DataPtr(nullptr, own), nullptr, false));
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), own_keys() | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::scalarTypeToTypeMeta(c10::dtype_or_default(dtype)));
  result.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return result;
}

void grow_storage(const at::Tensor& self, size_t bytes) {
  if (self.numel() == 0) return;
  const c10::Storage& storage = self.unsafeGetTensorImpl()->unsafe_storage();
  if (bytes > storage.nbytes()) resize_storage(storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<c10::MemoryFormat> format) {
  const int64_t old_bytes = static_cast<int64_t>(self.storage().nbytes());
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    at::detail::check_size_nonnegative(size);
    // Memory first: the tensor stays as it was when there is none.
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        size, self.itemsize(), static_cast<size_t>(self.storage_offset()));
    const bool is_empty = std::find(size.begin(), size.end(), 0) != size.end();
    if (!is_empty && bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
    impl->set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_source_storage_offset(at::Tensor& self, c10::Storage source, int64_t offset,
                                      at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  // Sizes first and memory second: the storage grows to hold what the tensor is to cover.
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto first = static_cast<size_t>(offset);
  if (stride.data() != nullptr) {
    TORCH_CHECK_VALUE(size.size() == stride.size(), "set_: ", size.size(), " sizes but ", stride.size(),
                      " strides");
    impl->set_sizes_and_strides(size, stride, offset);
    grow_storage(self, at::detail::computeStorageNbytes(size, stride, self.itemsize(), first));
  } else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
    grow_storage(self, at::detail::computeStorageNbytesContiguous(size, self.itemsize(), first));
  }
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, c10::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {length}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  TORCH_CHECK(source.device() == self.device(), "set_: expected a source on ", self.device(), ", got one on ",
              source.device());
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                                   source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                             c10::DataPtr(nullptr, self.device()),
                                                             device_allocator(), true));
  return set_source_storage_offset(self, std::move(storage), 0, {0}, {});
}

// Keeps Parameters the same objects in Module.to(): their impl may take another device's.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
           (tensor.device().type() == device_type() || tensor.device().is_cpu());
  };
  return is_plain(self) && is_plain(from);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  check_world(self, "record_stream");
  take_device_memory(self);
  static_cast<c10::DeviceAllocator*>(device_allocator())->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  check_world(impl, storage.device().index(), "resize_");
  if (is_unmaterialised(impl) || (impl->nbytes() == 0 && new_storages_wait(storage.device().index()))) {
    resize_unmaterialised(impl, bytes);
    return;
  }
  const CurrentDevice current(storage.device().index());
  c10::DataPtr memory = device_allocator()->allocate(bytes);
  const size_t kept = std::min(bytes, impl->nbytes());
  if (kept != 0 && impl->data() != nullptr) device_allocator()->copy_data(memory.get(), impl->data(), kept);
  impl->set_data_ptr_noswap(std::move(memory));
  impl->clear_materializer();  // copy-on-write's: the memory is the storage's own now
  impl->set_nbytes(bytes);
}

void register_factories() {
  torch::Library& m = library(own_key());
  m.impl("empty.memory_format", empty);
  m.impl("from_file", from_file);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", efficient_zero_tensor);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Storage_storage_offset", set_source_storage_offset);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_empty);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
  // PyTorch's fallbacks for these keys would clone the tensor, and expect a result that the op does not have.
  for (const auto key :
       {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor}) {
    library(key).impl("record_stream", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace loom::glue
