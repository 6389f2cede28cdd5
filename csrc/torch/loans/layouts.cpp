#include "torch/loans/layouts.h"

#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include "torch/loans/lend.h"
#include "torch/loans/quantizer.h"

namespace loom::glue {

namespace {

using at::native::NestedTensorImpl;
using c10::DispatchKey;
using c10::DispatchKeySet;

bool is_nested(const at::Tensor& tensor) { return tensor.key_set().has(DispatchKey::NestedTensor); }

// A nested tensor over memory of any device, laid out as another.
at::Tensor nested_over(const at::Tensor& memory, const at::Tensor& layout) {
  const NestedTensorImpl* like = at::native::get_nested_tensor_impl(layout);
  return at::detail::make_tensor<NestedTensorImpl>(memory, like->get_nested_sizes(),
                                                   like->get_nested_strides(), like->get_storage_offsets());
}

// The quantized tensor `layout` over other memory.
at::Tensor quantized_over(const at::Tensor& memory, const at::Tensor& layout, at::QuantizerPtr quantizer) {
  at::Tensor made = make_quantized(memory, layout.scalar_type(), std::move(quantizer));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes(), layout.strides(),
                                                    memory.storage_offset());
  return made;
}

}  // namespace

at::Tensor memory_of(const at::Tensor& tensor) {
  if (is_nested(tensor)) return at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor();
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const DispatchKeySet keys =
      (impl->key_set() - DispatchKeySet(DispatchKey::Quantized)) | DispatchKeySet(DispatchKey::Dense);
  at::Tensor memory = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(impl->storage()), keys,
      c10::scalarTypeToTypeMeta(c10::toUnderlying(tensor.scalar_type())));
  memory.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return memory;
}

void check_computes(const runtime::Device& device, const char* kind) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      device.runs_kernels(), "a device that computes nothing has no shapes for ", kind,
      " tensors: use layout=torch.jagged for nested ones and fake quantization under the "
      "driver 'null' and in dry runs");
}

at::Tensor make_quantized(const at::Tensor& memory, c10::ScalarType dtype, at::QuantizerPtr quantizer) {
  const DispatchKeySet keys =
      (memory.key_set() - DispatchKeySet(DispatchKey::Dense)) | DispatchKeySet(DispatchKey::Quantized);
  at::Tensor made = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(memory.storage()), keys, c10::scalarTypeToTypeMeta(dtype), std::move(quantizer));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(memory.sizes(), memory.strides(),
                                                    memory.storage_offset());
  return made;
}

at::Tensor coo_over(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
                    bool is_coalesced) {
  const int64_t sparse = indices.size(0), dense = static_cast<int64_t>(sizes.size()) - sparse;
  return at::_sparse_coo_tensor_with_dims_and_tensors(sparse, dense, sizes, indices, values,
                                                      values.options().layout(c10::kSparse), is_coalesced);
}

at::Tensor compressed_over(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                           at::IntArrayRef sizes, at::Layout layout) {
  const DispatchKeySet keys(c10::computeDispatchKey(values.scalar_type(), layout, values.device()));
  at::Tensor made =
      at::detail::make_tensor<at::SparseCsrTensorImpl>(keys, values.device(), layout, values.dtype());
  static_cast<at::SparseCsrTensorImpl*>(made.unsafeGetTensorImpl())
      ->set_member_tensors(compressed, plain, values, sizes);
  return made;
}

Parts parts_of(const at::Tensor& tensor) {
  if (tensor.layout() == c10::kSparse) return {tensor._indices(), tensor._values()};
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
    return {compressed, plain, tensor.values()};
  }
  if (is_nested(tensor) || tensor.is_quantized()) return {memory_of(tensor)};
  return {};
}

const at::Tensor& Lending::lend_special(const at::Tensor& tensor, bool is_written) {
  by_keys_ = true;
  if (!is_nested(tensor)) {
    // A sparse tensor's parts do not say how large it is.
    mix(static_cast<uint64_t>(tensor.layout()) << 8, static_cast<uint64_t>(tensor.dim()));
    for (const int64_t size : tensor.sizes()) mix(static_cast<uint64_t>(size));
  }
  for (Loan& loan : special_loans_) {
    if (!loan.original().is_same(tensor)) continue;
    // Its parts are lent again: they may be written from now on, and a record shows them twice.
    make_special_alias(tensor, is_written);
    loan.is_written |= is_written;
    return loan.alias;
  }
  at::Tensor alias = make_special_alias(tensor, is_written);
  return special_loans_
      .emplace_back(c10::MaybeOwned<at::Tensor>::owned(at::Tensor(tensor)), std::move(alias), is_written)
      .alias;
}

// The engine's tensor over the parts of a tensor of the device.
at::Tensor Lending::make_special_alias(const at::Tensor& tensor, bool is_written) {
  // Some kernels keep what the gradient needs only if their operand says that it wants one (sparse.mm with
  // "amax").
  const bool wants_gradient = tensor.requires_grad();
  if (tensor.layout() == c10::kSparse) {
    const at::Tensor indices = lend(tensor._indices(), is_written),
                     values = lend(tensor._values(), is_written);
    return coo_over(indices, values, tensor.sizes(), tensor.is_coalesced()).set_requires_grad(wants_gradient);
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
    const at::Tensor values = lend(tensor.values(), is_written);
    return compressed_over(lend(compressed, is_written), lend(plain, is_written), values, tensor.sizes(),
                           tensor.layout())
        .set_requires_grad(wants_gradient);
  }
  const bool is_strided_nested = is_nested(tensor);
  TORCH_CHECK_NOT_IMPLEMENTED(is_strided_nested || tensor.is_quantized(), op_name(),
                              " is not implemented for ", tensor.layout(), " tensors on ", device_name(),
                              " devices");
  const at::Tensor memory = lend(memory_of(tensor), is_written);
  check_computes(target(), is_strided_nested ? "nested" : "quantized");
  if (is_strided_nested) {
    const at::Tensor& sizes = at::native::get_nested_sizes(tensor);
    const auto* size = sizes.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < sizes.numel(); ++i) mix(static_cast<uint64_t>(size[i]));
    return nested_over(memory, tensor);
  }
  return quantized_over(memory, tensor,
                        with_parts(at::get_qtensorimpl(tensor)->quantizer(),
                                   [&](const at::Tensor& part) { return lend(part); }));
}

at::Tensor Lending::adopt_special(const at::Tensor& result) {
  if (result.layout() == c10::kSparse) {
    return coo_over(adopt(result._indices()), adopt(result._values()), result.sizes(), result.is_coalesced());
  }
  if (at::sparse_csr::is_sparse_compressed(result)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(result);
    return compressed_over(adopt(compressed), adopt(plain), adopt(result.values()), result.sizes(),
                           result.layout());
  }
  if (is_nested(result)) return nested_over(adopt(memory_of(result)), result);
  if (result.is_quantized()) {
    return quantized_over(adopt(memory_of(result)), result,
                          with_parts(at::get_qtensorimpl(result)->quantizer(),
                                     [&](const at::Tensor& part) { return adopt(part); }));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op_name(), " on ", device_name(),
                              " devices cannot return a tensor of layout ", result.layout());
}

// A kernel gives a sparse tensor new parts where it has other elements than before.
void Lending::write_back_special(const Loan& loan) {
  if (loan.alias.layout() == c10::kSparse) {
    const at::SparseTensorImpl* alias = at::sparse::get_sparse_impl(loan.alias);
    at::SparseTensorImpl* original = at::sparse::get_sparse_impl(loan.original());
    const at::Tensor indices = adopt(alias->indices()), values = adopt(alias->values());
    if (!indices.is_same(original->indices()) || !values.is_same(original->values()) ||
        alias->sizes() != original->sizes() || alias->sparse_dim() != original->sparse_dim()) {
      original->raw_resize_(alias->sparse_dim(), alias->dense_dim(), alias->sizes());
      original->set_indices_and_values_unsafe(indices, values);
    }
    original->set_coalesced(alias->coalesced());
    return;
  }
  if (is_nested(loan.original())) return;  // none of its kernels resizes such a tensor
  if (loan.original().is_quantized()) {
    const c10::TensorImpl* alias = loan.alias.unsafeGetTensorImpl();
    c10::TensorImpl* original = loan.original().unsafeGetTensorImpl();
    if (alias->sizes() != original->sizes() || alias->strides() != original->strides())
      original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
    at::get_qtensorimpl(loan.original())
        ->set_quantizer_(with_parts(at::get_qtensorimpl(loan.alias)->quantizer(),
                                    [&](const at::Tensor& part) { return adopt(part); }));
    return;
  }
  auto* original = static_cast<at::SparseCsrTensorImpl*>(loan.original().unsafeGetTensorImpl());
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(loan.alias);
  const auto [own_compressed, own_plain] = at::sparse_csr::getCompressedPlainIndices(loan.original());
  const at::Tensor first = adopt(compressed), second = adopt(plain), values = adopt(loan.alias.values());
  if (first.is_same(own_compressed) && second.is_same(own_plain) && values.is_same(original->values()) &&
      loan.alias.sizes() == loan.original().sizes()) {
    return;
  }
  original->set_member_tensors(first, second, values, loan.alias.sizes());
}

}  // namespace loom::glue
