// Sparse tensors: their parts live on the device; ops run on the engine's sparse tensors over the same parts.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <ATen/ops/zeros.h>

#include "torch/core/device.h"
#include "torch/core/extension_points.h"
#include "torch/core/registration.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

// PyTorch's sparse tensors take the current device: it must be that of their parts.
at::Tensor coo_of_dims(int64_t sparse_dim, int64_t dense_dim, at::IntArrayRef size,
                       std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                       std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const CurrentDevice current(resolve_device(device).index());
  return at::native::new_with_dims_sparse(sparse_dim, dense_dim, size, dtype, layout, device, pin_memory);
}

at::Tensor coo_of_tensors(int64_t sparse_dim, int64_t dense_dim, c10::SymIntArrayRef size,
                          const at::Tensor& indices, const at::Tensor& values,
                          std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                          std::optional<c10::Device> device, std::optional<bool> pin_memory,
                          std::optional<bool> is_coalesced) {
  const CurrentDevice current(resolve_device(values.device()).index());
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse_dim, dense_dim, size, indices, values,
                                                            dtype, layout, device, pin_memory, is_coalesced);
}

template <auto empty>
at::Tensor empty_sparse(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                        std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  const CurrentDevice current(resolve_device(device).index());
  return empty(size, dtype, layout, device, pin_memory, memory_format);
}

// On the device that the program names, which may be the host.
template <auto empty_like>
at::Tensor empty_like_sparse(const at::Tensor& self, std::optional<c10::ScalarType> dtype,
                             std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                             std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  const c10::Device wanted = device.value_or(self.device());
  const CurrentDevice current(
      resolve_device(wanted.type() == device_type() ? wanted : self.device()).index());
  return empty_like(self, dtype, layout, wanted, pin_memory, memory_format);
}

// The place of each position in a contiguous tensor of such sizes.
at::Tensor flattened_indices(const at::Tensor& indices, at::IntArrayRef size) {
  if (indices.size(0) == 0) return at::zeros({indices.size(1)}, indices.options());
  at::Tensor flat = indices.select(0, 0).clone();
  for (int64_t dim = 1; dim < indices.size(0); ++dim) {
    flat.mul_(size[static_cast<size_t>(dim)]).add_(indices.select(0, dim));
  }
  return flat;
}

}  // namespace

void register_sparse() {
  register_flattened_indices(flattened_indices);
  torch::Library& m = library(sparse_key());
  m.impl("empty.memory_format", empty_sparse<at::native::empty_sparse_symint>);
  m.impl("empty_like", empty_like_sparse<at::native::empty_like_sparse_coo>);
  m.impl("_sparse_coo_tensor_with_dims", coo_of_dims);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", coo_of_tensors);
  m.impl("zero_", at::native::zero_sparse_);
  // Between devices, too.
  m.impl("copy_", at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", at::native::copy_sparse_);
  m.impl("sparse_resize_", at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", at::native::sparse_resize_and_clear_);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
}

void register_sparse_csr() {
  torch::Library& m = library(sparse_csr_key());
  m.impl("empty.memory_format", empty_sparse<at::native::empty_sparse_compressed_symint>);
  m.impl("empty_like", empty_like_sparse<at::native::empty_like_sparse_csr>);
  m.impl("copy_", at::native::copy_sparse_compressed_);
  m.impl("crow_indices", at::native::crow_indices_sparse_csr);
  m.impl("col_indices", at::native::col_indices_sparse_csr);
  m.impl("ccol_indices", at::native::ccol_indices_sparse_csr);
  m.impl("row_indices", at::native::row_indices_sparse_csr);
  m.impl("values", at::native::values_sparse_csr);
  m.impl("_nnz", at::native::_nnz_sparse_csr);
  m.impl("sparse_dim", at::native::sparse_dim_sparse_csr);
  m.impl("dense_dim", at::native::dense_dim_sparse_csr);
}

}  // namespace loom::glue
