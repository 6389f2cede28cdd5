#include "torch/dispatch/lend.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/AutogradState.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include "runtime/capture.h"
#include "torch/memory/allocator.h"
#include "torch/memory/lazy.h"
#include "torch/memory/resize.h"

namespace loom::glue {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

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

// Where the engine reaches a storage.
void* data_of(c10::StorageImpl* storage, bool is_written) {
  return devices().engine_address(device_data(storage, is_written));
}

c10::DataPtr borrowed(void* data, c10::DeviceType engine) {
  return {data, nullptr, [](void*) {}, c10::Device(engine)};
}

c10::Storage alias_storage(c10::StorageImpl* original, bool is_written, c10::DeviceType engine) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), original->nbytes(),
      borrowed(data_of(original, is_written), engine), c10::GetAllocator(engine), /*resizable=*/true));
}

// A storage lent for reading is now lent for writing: copy-on-write gives it memory of its own only then.
void make_writable(const at::Tensor& alias, c10::StorageImpl* original) {
  void* data = data_of(original, true);
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
    own->set_data_ptr_noswap(borrowed(data_of(storage, is_written), c10::kCPU));
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
    : op_name_(op_name), policy_(policy), no_autograd_(excluded_keys()) {
  run_backward_in_this_thread();
}

Lending::~Lending() {
  if (table_ != nullptr) table_->learn(key_, learned_);
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

void Lending::mix_metadata(const c10::TensorImpl* impl) {
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  const auto dtype = static_cast<uint64_t>(impl->dtype().toScalarType());
  dtypes_ |= fallback::DtypeSet{1} << dtype;
  mix(dtype << 8 | sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    mix(static_cast<uint64_t>(sizes[i]));
    mix(static_cast<uint64_t>(strides[i]));
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
  if (!tensor.defined()) {
    mix(1);
    return tensor;
  }
  if (!is_loom(tensor)) {
    mix(2);
    has_host_operands_ = true;
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
  mix_metadata(impl);
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

bool Lending::is_alias(const at::Tensor& tensor) const {
  return std::any_of(loans_.begin(), loans_.end(),
                     [&](const Loan& loan) { return loan.alias.is_same(tensor); });
}

void Lending::resize_loan(size_t index, at::IntArrayRef sizes, at::IntArrayRef strides) {
  Loan& loan = loans_[index];
  c10::TensorImpl* original = loan.original.unsafeGetTensorImpl();
  original->set_sizes_and_strides(sizes, strides);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, original->itemsize(),
                                                        static_cast<size_t>(original->storage_offset()));
  if (bytes > original->unsafe_storage().nbytes()) resize_storage(original->unsafe_storage(), bytes);
  c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
  auto* alias = static_cast<AliasImpl*>(loan.alias.unsafeGetTensorImpl());
  c10::StorageImpl* alias_storage = alias->unsafe_storage().unsafeGetStorageImpl();
  alias_storage->set_data_ptr_noswap(borrowed(data_of(storage, true), alias_storage->device_type()));
  alias_storage->set_nbytes(storage->nbytes());
  alias->take_metadata(original);
}

bool Lending::runs_in_place() {
  const runtime::Runtime& runtime = devices();
  // Without arithmetic nothing waits for a worker.
  if (!runtime.runs_kernels()) return true;
  const runtime::StreamRef stream = runtime::current_stream_of(device());
  const driver::Stream handle = translated([&] { return runtime.stream(stream.device, stream.id); });
  if (!runtime.driver().runs_in_place(handle) || runtime::is_captured(stream)) return false;
  in_place_stream_ = handle;
  return true;
}

void Lending::submit(runtime::StreamRef stream, const driver::Kernel& kernel,
                     const std::vector<c10::Storage>& outputs) {
  // A graph keeps them: a reader may listen to its replays.
  if (!runtime::tape::is_read() && !runtime::capture::is_underway()) [[likely]] {
    return runtime::submit(stream, kernel);
  }
  auto operands = describe_operands();
  std::vector<int64_t> sizes;
  sizes.reserve(outputs.size());
  constexpr static int64_t kUnitStride = 1;
  for (const c10::Storage& output : outputs) {
    if (output.nbytes() == 0) continue;
    sizes.push_back(static_cast<int64_t>(output.nbytes()));
    operands.push_back({output.data(), &sizes.back(), &kUnitStride, 1, 1, true});
  }
  runtime::submit(stream, kernel, operands.data(), operands.size());
}

void Lending::run_kernel(Body body, void* context) {
  struct Run {
    Body body;
    void* context;
    OutputAllocations* output_allocations;
  } run{body, context, &allocations_};
  const auto with_output_allocations = [](void* pointer) {
    const auto* run = static_cast<const Run*>(pointer);
    const OutputAllocations::Active active(*run->output_allocations);
    run->body(run->context);
  };
  driver::Kernel kernel{op_name_, with_output_allocations, nullptr, &run};
  kernel.in_place = true;
  // What runtime::submit() looks for has been looked for.
  if (in_place_stream_ != nullptr && !runtime::tape::is_read()) [[likely]] {
    return translated([&] { devices().driver().submit(in_place_stream_, kernel); });
  }
  const runtime::StreamRef stream = runtime::current_stream_of(device());
  if (!devices().runs_kernels()) {
    // The host infers the result's metadata: allocations are the host's own scalars.
    body(context);
    kernel.run = [](void*) {};
    kernel.in_place = false;
  }
  translated([&] {
    if (runtime::tape::is_read()) [[unlikely]] {
      const auto operands = describe_operands();
      runtime::submit(stream, kernel, operands.data(), operands.size());
    } else {
      runtime::submit(stream, kernel);
    }
  });
}

c10::SmallVector<runtime::Operand, 6> Lending::describe_operands() const {
  c10::SmallVector<runtime::Operand, 6> operands;
  for (const Loan& loan : loans_) {
    if (loan.original.layout() != c10::kStrided || loan.original.numel() == 0) continue;
    const c10::TensorImpl* impl = loan.original.unsafeGetTensorImpl();
    const auto* first = static_cast<const char*>(impl->unsafe_storage().data());
    if (first == nullptr) continue;
    operands.push_back({first + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()),
                        impl->sizes().data(), impl->strides().data(), static_cast<int32_t>(impl->dim()),
                        static_cast<int32_t>(impl->itemsize()), loan.is_written});
  }
  return operands;
}

}  // namespace loom::glue
