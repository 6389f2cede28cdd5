// Taking back: the engine's results as tensors of the device, and what its kernel changed of its operands.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>

#include "torch/engine/alias.h"
#include "torch/loans/convolution_memory.h"
#include "torch/loans/layouts.h"
#include "torch/loans/lend.h"
#include "torch/memory/allocator.h"
#include "torch/memory/workspaces.h"

namespace loom::glue {

namespace {

bool allows_tf32_convolutions() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV) ==
         at::Float32Precision::TF32;
}

// The library takes its memory when the result has its own.
void take_convolution_memory(const Lending& lending, const at::Tensor& result) {
  if (!workspaces::may_be_taken(lending.op().shape_class)) return;
  const auto& loans = lending.loans();
  const bool is_gradient = std::string_view(lending.op().full_name) == "aten::convolution_backward";
  const size_t first = is_gradient ? 1 : 0;
  if (!at::globalContext().userEnabledCuDNN() || loans.size() < first + 2) return;
  const at::Tensor &source = loans[first].original(), &weight = loans[first + 1].original();
  auto role = ConvolutionRole::kForward;
  if (is_gradient) {
    role = result.sizes() == source.sizes() ? ConvolutionRole::kGradientOfSource
                                            : ConvolutionRole::kGradientOfWeight;
    if (role == ConvolutionRole::kGradientOfWeight && result.sizes() != weight.sizes()) return;  // of a bias
  }
  const at::Tensor& out = is_gradient ? loans[0].original() : result;
  const size_t bytes = convolution_memory(role, source, weight, out, allows_tf32_convolutions());
  if (bytes != 0) workspaces::take_for_call(lending.chosen(), bytes);
}

}  // namespace

at::Tensor Lending::adopt(at::Tensor result) {
  if (!result.defined() || is_loom(result)) return result;
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (!is_dense(result)) [[unlikely]] {
    for (const Loan& loan : special_loans_) {
      if (loan.alias.unsafeGetTensorImpl() == impl) return loan.original();
    }
    return adopt_special(result);
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  // Fresh results have no other owner; only a shared result can be an operand or a view of one.
  if (result.use_count() > 1 || (storage != nullptr && impl->unsafe_storage().use_count() > 1)) {
    for (Loan& loan : loans_) {
      if (loan.alias.unsafeGetTensorImpl() == impl) return loan.original();
    }
    for (Loan& loan : loans_) {
      if (loan.alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() != storage) continue;
      const auto math_bits = impl->key_set() & kMathBits;
      at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
          c10::TensorImpl::VIEW, c10::Storage(loan.original().storage()),
          (loan.original().key_set() - kMathBits) | math_bits, impl->dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(),
                                                        impl->storage_offset());
      return view;
    }
    if (result.use_count() > 1) return adopt_unowned(result);
  }
  const c10::Device own(device_type(), static_cast<c10::DeviceIndex>(device()));
  if (storage == nullptr) return adopt_unowned(result);
  if (storage->device() != own) {
    void* data = storage->mutable_data();
    if (data == nullptr && storage->nbytes() != 0)
      return adopt_unowned(result);  // the engine computes no contents
    c10::DataPtr& memory = storage->_mutable_data_ptr_no_checks();
    if (data == nullptr) {
      memory.unsafe_set_device(own);
    } else if (!make_own(memory, storage->nbytes())) {
      return adopt_unowned(result);
    }
    storage->set_allocator(device_allocator());
  }
  // For the tensor's device, which becomes that of its storage. Moved through, so that no reference is
  // counted.
  impl->set_storage_keep_dtype(std::move(const_cast<c10::Storage&>(impl->unsafe_storage())));
  impl->_change_backend_component_keys(own);
  if (op_.record.shape_class == runtime::ShapeClass::kConvolution) [[unlikely]]
    take_convolution_memory(*this, result);
  return result;
}

// Makes what the kernel allocated the device's own: as it is when it was born there, else by a copy. False,
// and nothing is changed, for memory that this kernel did not allocate.
bool Lending::make_own(c10::DataPtr& memory, size_t bytes) {
  const runtime::Runtime& runtime = target().runtime();
  const c10::Device own(device_type(), static_cast<c10::DeviceIndex>(device()));
  const int index = allocations_.index_of(memory.get());
  if (index >= 0 && index < 64) learned_ |= OutputMask{1} << index;
  if (allocations_.is_latest_output(memory.get()) || runtime.device_of(memory.get()) == own.index()) {
    if (runtime.is_fenced()) {
      void* address = runtime.device_address(memory.release_context());
      memory = {address, address, &free_device_memory, own};
    } else {
      memory.unsafe_set_device(own);
    }
    return true;
  }
  if (index < 0) return false;
  void* address = take_device_memory(target(), bytes);
  c10::DataPtr owned{address, address, &free_device_memory, own};
  copy_from_host(address, memory.get(), bytes);
  memory = std::move(owned);
  return true;
}

// No copy of the program's: a device would have computed the result in place.
void Lending::copy_from_host(void* destination, const void* source, size_t bytes) {
  translated(
      [&] { runtime::store_result(runtime::current_stream_of(device()), destination, source, bytes); });
}

// A result that was not born on the device: wrapped host memory, a tensor that the engine keeps or returns
// twice, or one without data.
at::Tensor Lending::adopt_unowned(const at::Tensor& result) {
  // Not where shape functions run in the kernel's place: see ShownBy.
  for (const auto& [engines, own] : copied_) {
    if (engines.is_same(result) && runs_kernels()) return own;
  }
  const CurrentDevice current(device());
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  const size_t bytes = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize());
  const auto math_bits = impl->key_set() & kMathBits;
  void* const address = take_device_memory(target(), bytes);
  c10::DataPtr memory{address, address, &free_device_memory,
                      c10::Device(device_type(), static_cast<c10::DeviceIndex>(device()))};
  const bool has_contents = impl->has_storage() && impl->storage().data() != nullptr && !result.is_meta();
  if (has_contents && bytes != 0) copy_from_host(memory.get(), result.const_data_ptr(), bytes);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(memory), device_allocator(), true));
  at::Tensor owned =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), own_keys() | math_bits, impl->dtype());
  owned.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides());
  copied_.emplace_back(result, owned);
  if (op_.record.shape_class == runtime::ShapeClass::kConvolution) [[unlikely]]
    take_convolution_memory(*this, owned);
  return owned;
}

bool Lending::has_moved(const Loan& loan) const {
  const c10::StorageImpl* alias = loan.alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const c10::StorageImpl* own =
      loan.original().unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return alias->data() != target_->runtime().engine_address(own->data());
}

void Lending::write_back() {
  for (Loan& loan : loans_) {
    if (!loan.is_written) continue;
    c10::TensorImpl* alias = loan.alias.unsafeGetTensorImpl();
    c10::TensorImpl* original = loan.original().unsafeGetTensorImpl();
    c10::StorageImpl* alias_storage = alias->unsafe_storage().unsafeGetStorageImpl();
    c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
    const bool moved = has_moved(loan);
    if (alias_storage->nbytes() != storage->nbytes() || moved) {
      // The kernel resized it. New memory has an owner; memory that is still lent has none.
      const c10::Device own(device_type(), static_cast<c10::DeviceIndex>(device_));
      if (moved || alias_storage->data() == nullptr) {
        const size_t bytes = alias_storage->nbytes();
        c10::DataPtr memory = std::move(alias_storage->_mutable_data_ptr_no_checks());
        if (bytes == 0) {
          memory = c10::DataPtr(nullptr, own);
        } else if (memory.get() == nullptr || !make_own(memory, bytes)) {
          void* address = take_device_memory(target(), bytes);
          if (memory.get() != nullptr) copy_from_host(address, memory.get(), bytes);
          memory = {address, address, &free_device_memory, own};
        }
        storage->set_data_ptr_noswap(std::move(memory));
        alias_storage->set_data_ptr_noswap(
            alias_memory(target_->runtime().engine_address(storage->data()), alias_storage->device_type()));
      }
      storage->set_nbytes(alias_storage->nbytes());
    }
    loan.may_have_changed = alias->sizes() != original->sizes() || alias->strides() != original->strides() ||
                            alias->storage_offset() != original->storage_offset();
    if (loan.may_have_changed) {
      original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
    }
    // Some kernels leave their result conjugated and say so by the bit (linalg.lu_solve).
    if (loan.alias.is_conj() != loan.original().is_conj()) loan.original()._set_conj(loan.alias.is_conj());
    if (loan.alias.is_neg() != loan.original().is_neg()) loan.original()._set_neg(loan.alias.is_neg());
  }
  for (const Loan& loan : special_loans_) {
    if (loan.is_written) write_back_special(loan);
  }
}

}  // namespace loom::glue
