#include "torch/lend.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/AutogradState.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include "torch/allocator.h"
#include "torch/lazy.h"

namespace loom::glue {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Kernels of the engine must not record gradients, cast, or be seen by modes: the op has been through all
// that.
const DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

// Bits of a tensor that change how its memory reads. Everything else in a key set says where it lives.
const DispatchKeySet kMathBits =
    DispatchKeySet({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});

const DispatchKeySet kOwnKeys(DispatchKey::PrivateUse1);

// An alias has the metadata of its original, keys apart. Deriving gives access to TensorImpl's own copying.
class AliasImpl final : public c10::TensorImpl {
 public:
  AliasImpl(c10::Storage storage, DispatchKeySet keys, const c10::TensorImpl* original)
      : TensorImpl(std::move(storage), keys, original->dtype()) {
    take_metadata(original);
  }

  void take_metadata(const c10::TensorImpl* original) {
    const c10::Device device = device_opt_.value();
    copy_generic_tensor_metadata(original, this);
    device_opt_ = device;
    if (original->is_wrapped_number()) set_wrapped_number(true);
  }
};

c10::DataPtr borrowed(void* data, c10::DeviceType engine) {
  return {data, nullptr, [](void*) {}, c10::Device(engine)};
}

c10::Storage alias_storage(c10::StorageImpl* original, bool is_written, c10::DeviceType engine) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), original->nbytes(),
      borrowed(device_data(original, is_written), engine), c10::GetAllocator(engine), /*resizable=*/true));
}

// A storage lent for reading is now lent for writing: copy-on-write gives it memory of its own only then.
void make_writable(const at::Tensor& alias, c10::StorageImpl* original) {
  void* data = device_data(original, /*is_written=*/true);
  c10::StorageImpl* own = alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (own->data() != data) own->set_data_ptr_noswap(borrowed(data, own->device_type()));
}

// Aliases that nobody holds any more, to be pointed at other memory: it saves two allocations an operand.
class AliasPool {
 public:
  at::Tensor take(const c10::TensorImpl* original, c10::StorageImpl* storage, bool is_written) {
    if (aliases_.empty()) return {};
    at::Tensor alias = std::move(aliases_.back());
    aliases_.pop_back();
    auto* impl = static_cast<AliasImpl*>(alias.unsafeGetTensorImpl());
    c10::StorageImpl* own = impl->unsafe_storage().unsafeGetStorageImpl();
    own->set_data_ptr_noswap(borrowed(device_data(storage, is_written), c10::kCPU));
    own->set_nbytes(storage->nbytes());
    impl->take_metadata(original);
    return alias;
  }

  void give_back(at::Tensor&& alias) {
    constexpr size_t kKept = 16;
    c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
    if (aliases_.size() >= kKept || alias.use_count() != 1 || impl->unsafe_storage().use_count() != 1) return;
    if (impl->key_set() != fresh_keys() || impl->is_inference() || impl->is_wrapped_number()) return;
    aliases_.push_back(std::move(alias));
  }

 private:
  // The keys of a tensor of the engine without conjugate, negative or zero bits.
  static DispatchKeySet fresh_keys() {
    static const DispatchKeySet keys = at::detail::empty_cpu({0}, c10::kFloat).key_set();
    return keys;
  }

  c10::SmallVector<at::Tensor, 16> aliases_;
};

thread_local AliasPool alias_pool;

}  // namespace

// An engine without arithmetic allocates nothing but the host's own scalars: those stay host memory.
Birth::Birth(int device) : previous_(birth_device) {
  if (devices().runs_kernels()) birth_device = device;
}
Birth::~Birth() { birth_device = previous_; }

DispatchKeySet engine_keys() {
  static const DispatchKeySet keys(engine_type() == c10::kMeta ? DispatchKey::Meta : DispatchKey::CPU);
  return keys;
}

namespace {

// The autograd engine hands the backward of an accelerator to a thread of its own, so that issuing work for
// it does not wait for the CPU's. Here work runs in the thread that issues it: the hand-off would cost two
// wake-ups a backward (more than a small model's whole step) and buy nothing. Done once per thread, at its
// first op: whoever calls torch.autograd.set_multithreading_enabled(True) later has the engine's threads.
void run_backward_in_this_thread() {
  thread_local bool done = false;
  if (done) [[likely]] {
    return;
  }
  done = true;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

}  // namespace

void check_has_memory(const at::Tensor& tensor, const char* op_name) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->unsafe_storage().data() != nullptr || impl->numel() == 0 || tensor._is_zerotensor()) [[likely]] {
    return;
  }
  TORCH_CHECK(false, op_name, ": a tensor of shape ", tensor.sizes(), " on ", tensor.device(),
              " has no memory: its storage holds ", impl->unsafe_storage().nbytes(),
              " bytes (resized after the tensor was made?)");
}

Lending::Lending(const char* op_name, OperandPolicy policy)
    : op_name_(op_name), policy_(policy), no_autograd_(kExcluded) {
  run_backward_in_this_thread();
}

Lending::~Lending() {
  if (engine_keys().has(DispatchKey::Meta)) return;
  for (Loan& loan : loans_) {
    if (loan.alias.layout() == c10::kStrided) alias_pool.give_back(std::move(loan.alias));
  }
}

void Lending::set_device(int device) {
  if (device_ < 0) device_ = device;
}

int Lending::device() {
  if (device_ < 0) device_ = resolve_device(std::nullopt).index();
  return device_;
}

void Lending::throw_device_mismatch(const at::Tensor& tensor) const {
  const c10::Device own(kLoom, static_cast<c10::DeviceIndex>(device_));
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", own,
              " and ", tensor.device(), "! (when checking the operands of ", op_name_, ")");
}

void Lending::check_device(const at::Tensor& tensor) {
  const int index = tensor.device().index();
  if (device_ < 0) {
    device_ = index;
  } else if (device_ != index) {
    throw_device_mismatch(tensor);
  }
}

at::Tensor Lending::lend(const at::Tensor& tensor, bool is_written) {
  return lend_checked(tensor, is_written, policy_.host_tensors, loans_.size());
}

at::Tensor Lending::lend_element(const at::Tensor& tensor, bool is_written) {
  return lend_checked(tensor, is_written, policy_.host_tensors || policy_.host_lists,
                      std::min<size_t>(loans_.size(), 8));
}

at::Tensor Lending::lend_checked(const at::Tensor& tensor, bool is_written, bool takes_host,
                                 size_t search_limit) {
  if (!tensor.defined()) return tensor;
  if (!is_loom(tensor)) {
    const bool is_host = tensor.device().is_cpu();
    if (is_host && (takes_host || (policy_.host_scalars && tensor.dim() == 0))) return tensor;
    if (device_ < 0) device();
    throw_device_mismatch(tensor);
  }
  check_device(tensor);
  if (tensor.layout() != c10::kStrided) {
    TORCH_CHECK_NOT_IMPLEMENTED(!is_written, op_name_, " cannot write to a ", tensor.layout(), " tensor on ",
                                device_name(), " devices; use the form that returns a new tensor");
    return lend_sparse(tensor);
  }

  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  c10::Storage storage;
  c10::StorageImpl* original_storage = impl->unsafe_storage().unsafeGetStorageImpl();
  check_has_memory(tensor, op_name_);
  for (size_t i = 0; i < search_limit; ++i) {
    Loan& loan = loans_[i];
    if (loan.original.unsafeGetTensorImpl() == impl) {
      loan.is_written |= is_written;
      if (is_written) make_writable(loan.alias, original_storage);
      return loan.alias;
    }
    // Views of one storage stay views of one storage: the kernel's overlap checks depend on it.
    if (loan.original.layout() == c10::kStrided &&
        loan.original.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == original_storage) {
      if (is_written) make_writable(loan.alias, original_storage);
      storage = loan.alias.unsafeGetTensorImpl()->unsafe_storage();
    }
  }
  const c10::DeviceType engine = engine_keys().has(DispatchKey::Meta) ? c10::kMeta : c10::kCPU;
  const DispatchKeySet math_bits = impl->key_set() & kMathBits;
  at::Tensor alias;
  if (!storage && original_storage != nullptr && engine == c10::kCPU && math_bits.empty()) {
    alias = alias_pool.take(impl, original_storage, is_written);
  }
  if (!alias.defined()) {
    if (!storage) storage = alias_storage(original_storage, is_written, engine);
    alias = at::detail::make_tensor<AliasImpl>(std::move(storage), engine_keys() | math_bits, impl);
  }
  loans_.push_back({tensor, alias, is_written});
  return alias;
}

at::Tensor Lending::lend_sparse(const at::Tensor& tensor) {
  has_sparse_ = true;
  // Some kernels keep what the gradient needs only if their operand says that it wants one (sparse.mm with
  // "amax").
  const bool wants_gradient = tensor.requires_grad();
  if (tensor.layout() == c10::kSparse) {
    const at::Tensor indices = lend(tensor._indices()), values = lend(tensor._values());
    return at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes(), tensor.scalar_type(), c10::kSparse,
                                         c10::Device(c10::kCPU), false, tensor.is_coalesced())
        .set_requires_grad(wants_gradient);
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
    return at::_sparse_compressed_tensor_unsafe(lend(compressed), lend(plain), lend(tensor.values()),
                                                tensor.sizes(), tensor.scalar_type(), tensor.layout(),
                                                c10::Device(c10::kCPU), false)
        .set_requires_grad(wants_gradient);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op_name_, " is not implemented for ", tensor.layout(), " tensors on ",
                              device_name(), " devices");
}

at::Tensor Lending::adopt_sparse(const at::Tensor& result) {
  const c10::Device own(kLoom, static_cast<c10::DeviceIndex>(device()));
  if (result.layout() == c10::kSparse) {
    return at::_sparse_coo_tensor_unsafe(adopt(result._indices()), adopt(result._values()), result.sizes(),
                                         result.scalar_type(), c10::kSparse, own, false,
                                         result.is_coalesced());
  }
  if (at::sparse_csr::is_sparse_compressed(result)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(result);
    return at::_sparse_compressed_tensor_unsafe(adopt(compressed), adopt(plain), adopt(result.values()),
                                                result.sizes(), result.scalar_type(), result.layout(), own,
                                                false);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op_name_, " on ", device_name(),
                              " devices cannot return a tensor of layout ", result.layout());
}

at::Tensor Lending::adopt(at::Tensor result) {
  if (!result.defined() || is_loom(result)) return result;
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (result.layout() != c10::kStrided) return adopt_sparse(result);
  TORCH_CHECK_NOT_IMPLEMENTED(!impl->key_set().has_all(DispatchKeySet(DispatchKey::Quantized)) &&
                                  !impl->key_set().has(DispatchKey::NestedTensor),
                              op_name_, ": quantized and nested tensors are not implemented on ",
                              device_name(), " devices");
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  // Fresh results belong to nobody else; only shared ones can be an operand or a view of one.
  if (result.use_count() > 1 || (storage != nullptr && impl->unsafe_storage().use_count() > 1)) {
    for (Loan& loan : loans_) {
      if (loan.alias.unsafeGetTensorImpl() == impl) return loan.original;
    }
    for (Loan& loan : loans_) {
      if (loan.alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() != storage) continue;
      const auto math_bits = impl->key_set() & kMathBits;
      at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
          c10::TensorImpl::VIEW, c10::Storage(loan.original.storage()),
          (loan.original.key_set() - kMathBits) | math_bits, impl->dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(),
                                                        impl->storage_offset());
      return view;
    }
    if (result.use_count() > 1) return adopt_unowned(result);
  }
  const c10::Device own(kLoom, static_cast<c10::DeviceIndex>(device()));
  if (storage == nullptr) return adopt_unowned(result);
  if (storage->device() != own) {
    void* data = storage->mutable_data();
    if (data == nullptr && storage->nbytes() != 0)
      return adopt_unowned(result);  // the engine computes no contents
    if (data != nullptr && devices().device_of(data) != own.index()) return adopt_unowned(result);
    storage->_mutable_data_ptr_no_checks().unsafe_set_device(own);
    storage->set_allocator(device_allocator());
  }
  impl->set_storage_keep_dtype(c10::Storage(impl->unsafe_storage()));
  impl->_change_backend_component_keys(own);
  return result;
}

// A result that was not born on the device: wrapped host memory, a tensor that the engine keeps, or one
// without data.
at::Tensor Lending::adopt_unowned(const at::Tensor& result) {
  const CurrentDevice current(device());
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  const size_t bytes = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize());
  const auto math_bits = impl->key_set() & kMathBits;
  c10::DataPtr memory = device_allocator()->allocate(bytes);
  const bool has_contents = impl->has_storage() && impl->storage().data() != nullptr && !result.is_meta();
  if (has_contents && bytes != 0) device_allocator()->copy_data(memory.get(), result.const_data_ptr(), bytes);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(memory), device_allocator(), true));
  at::Tensor owned =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kOwnKeys | math_bits, impl->dtype());
  owned.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides());
  return owned;
}

void Lending::settle() {
  for (Loan& loan : loans_) {
    if (!loan.is_written) continue;
    c10::TensorImpl* alias = loan.alias.unsafeGetTensorImpl();
    c10::TensorImpl* original = loan.original.unsafeGetTensorImpl();
    c10::StorageImpl* alias_storage = alias->unsafe_storage().unsafeGetStorageImpl();
    c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
    if (alias_storage->nbytes() != storage->nbytes() || alias_storage->data() != storage->data()) {
      // The kernel resized it. New memory has an owner; memory that is still lent has none.
      const c10::Device own(kLoom, static_cast<c10::DeviceIndex>(device_));
      if (alias_storage->data() != storage->data() || alias_storage->data() == nullptr) {
        c10::DataPtr memory = std::move(alias_storage->_mutable_data_ptr_no_checks());
        if (memory.get() == nullptr && alias_storage->nbytes() != 0) {
          const CurrentDevice current(device_);
          memory = device_allocator()->allocate(alias_storage->nbytes());
        }
        memory.unsafe_set_device(own);
        alias_storage->set_data_ptr_noswap(
            c10::DataPtr(memory.get(), nullptr, [](void*) {}, c10::Device(c10::kCPU)));
        storage->set_data_ptr_noswap(std::move(memory));
      }
      storage->set_nbytes(alias_storage->nbytes());
    }
    if (alias->sizes() != original->sizes() || alias->strides() != original->strides() ||
        alias->storage_offset() != original->storage_offset()) {
      original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
    }
    // Some kernels leave their result conjugated and say so by the bit (linalg.lu_solve).
    if (loan.alias.is_conj() != loan.original.is_conj()) loan.original._set_conj(loan.alias.is_conj());
    if (loan.alias.is_neg() != loan.original.is_neg()) loan.original._set_neg(loan.alias.is_neg());
  }
}

}  // namespace loom::glue
