#include "torch/loans/lend.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include "runtime/capture.h"
#include "runtime/memory/running_kernels.h"
#include "torch/core/host_room.h"
#include "torch/cuda/words.h"
#include "torch/engine/alias.h"
#include "torch/loans/device_mismatch.h"
#include "torch/loans/layouts.h"
#include "torch/memory/allocator.h"
#include "torch/memory/lazy.h"
#include "torch/memory/resize.h"
#include "torch/memory/workspaces.h"
#include "torch/memory/worlds.h"
#include "util/thread_local.h"

namespace loom::glue {

namespace {

using c10::DispatchKey;

// Where the engine of a device reaches a storage of it.
void* data_of(const runtime::Device& device, c10::StorageImpl* storage, bool is_written) {
  return device.runtime().engine_address(device_data(storage, is_written));
}

// A storage lent for reading is now lent for writing: copy-on-write gives it memory of its own only then.
void make_writable(const runtime::Device& device, const at::Tensor& alias, c10::StorageImpl* original) {
  void* data = data_of(device, original, true);
  if (alias.storage().data() != data) point_alias(alias, data);
}

}  // namespace

// The autograd engine hands the backward of an accelerator to a thread of its own, so that issuing work for
// it does not wait for the CPU's. Here work runs in the thread that issues it: the hand-off would cost two
// wake-ups a backward and buy nothing. In CUDA's name programs meet CUDA's thread all the same, which does
// not see what is local to theirs; in a dry run, which may have more devices than there are threads, they do
// not. Done once per thread, at its first op: a program may call
// torch.autograd.set_multithreading_enabled() later.
void choose_backward_thread() {
  LOOM_FAST_ACCESS static constinit thread_local bool done = false;
  if (done) [[likely]] {
    return;
  }
  done = true;
  if (device_type() == c10::DeviceType::CUDA && runtime::detail::world.load() == 0) return;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void check_has_memory(const at::Tensor& tensor, const char* op_name) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // storage() throws where a graph's result has lost its memory to a later run.
  if (impl->storage().data() != nullptr || impl->numel() == 0 || tensor._is_zerotensor()) [[likely]] {
    return;
  }
  TORCH_CHECK(false, op_name, ": a tensor of shape ", tensor.sizes(), " on ", tensor.device(),
              " has no memory: its storage holds ", impl->unsafe_storage().nbytes(),
              " bytes (resized after the tensor was made?)");
}

Lending::Lending(Op& op, OperandPolicy policy) : op_(op), policy_(policy) { choose_backward_thread(); }

void Lending::learn_cost() {
  runtime::simulated::forget_last_cost();
  teaches_cost_ = !op_.costs_by_value();
}

void Lending::begin_description() {
  description_.emplace();
  const auto add = [&](const Loan& loan, bool is_written) {
    description_->add_input(loan.original().unsafeGetTensorImpl(), is_written);
  };
  const Repeat* repeat = repeats_.begin();
  for (size_t i = 0; i <= loans_.size(); ++i) {
    for (; repeat != repeats_.end() && repeat->num_loans == i; ++repeat) {
      add(loans_[repeat->loan], repeat->is_written);
    }
    if (i < loans_.size()) add(loans_[i], loans_[i].is_written_first);
  }
  if (allows_tf32_ && (dtypes_ & set_of({at::kFloat})) != 0) description_->add_attribute("allow_tf32", true);
}

Lending::~Lending() {
  if (has_news_) [[unlikely]]
    keep_news();
  if (target_ == nullptr || !target_->runs_kernels()) return;
  // In the reverse order, so that the operands of a call like this one find their own aliases.
  for (auto loan = loans_.end(); loan != loans_.begin();) {
    if (!(--loan)->may_have_changed) give_back_alias(std::move(loan->alias));
  }
}

// What the call has shown becomes a part of its plan.
void Lending::keep_news() {
  if (has_learned_) {
    op_.plans.note_allocations(learned_, allocations_.seen().size());
    plan_.knows_outputs = true;
    plan_.outputs = learned_;
    plan_.is_boxed = plan_.has_rules;  // it has been taught as well
  }
  op_.plans.put(plan_key_, plan_);
}

// Whether the program lets a card's libraries compute such products of float32 in TF32, which is faster.
bool allows_tf32(runtime::ShapeClass shape_class) {
  using runtime::ShapeClass;
  if (shape_class != ShapeClass::kConvolution && shape_class != ShapeClass::kMatmul) [[likely]]
    return false;
  const auto op = shape_class == ShapeClass::kMatmul ? at::Float32Op::MATMUL : at::Float32Op::CONV;
  const at::Float32Precision asked = at::globalContext().float32Precision(at::Float32Backend::CUDA, op);
  return asked == at::Float32Precision::TF32;
}

// The path of an op looks its device up here, once.
void Lending::choose(const runtime::Runtime& seen, int device) {
  target_ = &seen.device(device);
  device_ = device;
  const auto dtype = static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  const auto is_strict = static_cast<uint64_t>(is_deterministic_wanted(op_.alert));
  allows_tf32_ = target_->chip().is_gpu && allows_tf32(op_.record.shape_class);
  mix(op_.record.id, dtype << 2 | static_cast<uint64_t>(allows_tf32_) << 1 | is_strict);
}

void Lending::learn_outputs() {
  learns_ = true;
  allocations_ = OutputAllocations::learning();
  if (op_.plans.knows_no_scratch() && takes_contiguous()) allocations_.guess(*target_);
  if (!op_.writes) allocations_.bound_by(*target_);
}

// Kernels copy operands that are not, which is scratch.
bool Lending::takes_contiguous() const {
  return !by_keys_ && std::all_of(loans_.begin(), loans_.end(), [](const Loan& loan) {
    return loan.original().unsafeGetTensorImpl()->is_contiguous();
  });
}

void Lending::set_device(int device) {
  if (device_ < 0) choose(devices(), device);
}

void Lending::choose_current() { choose(devices(), resolve_device(std::nullopt).index()); }

void Lending::throw_device_mismatch(const at::Tensor& tensor) const {
  const c10::Device own(device_type(), static_cast<c10::DeviceIndex>(device_));
  throw DeviceMismatch(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("Expected all tensors to be on the same device, but found at least two devices, ", own,
               " and ", tensor.device(), "! (when checking the operands of ", op_name(), ")"));
}

void Lending::choose_or_check(const at::Tensor& tensor) {
  // Another thread may have the program see other devices meanwhile: this op keeps to those of its first
  // operand.
  const runtime::Runtime& seen = target_ != nullptr ? target_->runtime() : devices();
  check_world(seen, tensor, op_name());
  const int index = tensor.device().index();
  if (device_ < 0) {
    choose(seen, index);
  } else if (device_ != index) {
    throw_device_mismatch(tensor);
  }
}

namespace {

// What an operand begins with in a key.
enum Mark : uint64_t { kUndefined = 1, kHost, kRepeated, kShared };

}  // namespace

void Lending::mix_sizes(const c10::TensorImpl* impl) {
  const at::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    mix(static_cast<uint64_t>(sizes[i]), static_cast<uint64_t>(strides[i]));
  }
}

at::Tensor Lending::lend_element(const at::Tensor& tensor, bool is_written) {
  return lend_checked(tensor, is_written, policy_.host_tensors || policy_.host_lists,
                      std::min<size_t>(loans_.size(), 8), Hold::kOwned);
}

const at::Tensor& Lending::lend_checked(const at::Tensor& tensor, bool is_written, bool takes_host,
                                        size_t search_limit, Hold hold) {
  if (!tensor.defined()) {
    mix(kUndefined);
    return tensor;
  }
  if (!is_loom(tensor)) {
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    mix(kHost | static_cast<uint64_t>(tensor.scalar_type()) << 8 | static_cast<uint64_t>(is_number) << 16 |
        static_cast<uint64_t>(tensor.dim()) << 24);
    if (is_dense(tensor)) mix_sizes(tensor.unsafeGetTensorImpl());
    has_host_operands_ = true;
    const bool is_host = tensor.device().is_cpu();
    if (is_host && (takes_host || (policy_.host_scalars && tensor.dim() == 0))) return tensor;
    if (device_ < 0) device();
    throw_device_mismatch(tensor);
  }
  check_device(tensor);
  if (!is_dense(tensor)) [[unlikely]]
    return lend_special(tensor, is_written);

  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  dtypes_ |= DtypeSet{1} << static_cast<uint64_t>(impl->dtype().toScalarType());
  c10::Storage storage;
  c10::StorageImpl* original_storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (impl->storage().data() == nullptr) [[unlikely]]
    check_has_memory(tensor, op_name());
  for (size_t i = 0; i < search_limit; ++i) {
    Loan& loan = loans_[i];
    if (loan.original().unsafeGetTensorImpl() == impl) {
      loan.is_written |= is_written;
      loan.may_have_changed |= is_written;
      if (is_written) make_writable(*target_, loan.alias, original_storage);
      mix(kRepeated, i);
      repeats_.push_back({loans_.size(), i, is_written});
      return loan.alias;
    }
    // Views of one storage stay views of one storage: the kernel's overlap checks depend on it.
    if (loan.original().unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == original_storage) {
      if (is_written) make_writable(*target_, loan.alias, original_storage);
      if (!storage) {
        mix(kShared, i);
        const int64_t distance = impl->storage_offset() - loan.original().storage_offset();
        offsets_ = offsets_ * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(distance) + 1;
      }
      storage = loan.alias.unsafeGetTensorImpl()->unsafe_storage();
    }
  }
  at::Tensor alias;
  if (!storage) {
    const c10::DeviceType engine = engine_type(*target_);
    void* const data = data_of(*target_, original_storage, is_written);
    if (is_written && original_storage->nbytes() >= host_memory::kLargeBytes && target_->runs_kernels())
        [[unlikely]]
      check_host_room(data, original_storage->nbytes());
    alias = reuse_alias(data, original_storage->nbytes(), engine, impl);
    if (!alias.defined()) storage = alias_storage(data, original_storage->nbytes(), engine);
  }
  if (!alias.defined()) alias = make_alias(std::move(storage), engine_keys(), impl);
  const CallKey& metadata = metadata_key(alias);
  mix(metadata.first, metadata.second);
  using Held = c10::MaybeOwned<at::Tensor>;
  return loans_
      .emplace_back(hold == Hold::kBorrowed ? Held::borrowed(tensor) : Held::owned(at::Tensor(tensor)),
                    std::move(alias), is_written)
      .alias;
}

bool Lending::is_alias(const at::Tensor& tensor) const {
  return std::any_of(loans_.begin(), loans_.end(),
                     [&](const Loan& loan) { return loan.alias.is_same(tensor); });
}

void Lending::resize_loan(size_t index, at::IntArrayRef sizes, at::IntArrayRef strides) {
  Loan& loan = loans_[index];
  c10::TensorImpl* original = loan.original().unsafeGetTensorImpl();
  original->set_sizes_and_strides(sizes, strides);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, original->itemsize(),
                                                        static_cast<size_t>(original->storage_offset()));
  if (bytes > original->unsafe_storage().nbytes()) resize_storage(original->unsafe_storage(), bytes);
  c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
  point_alias(loan.alias, data_of(*target_, storage, true), storage->nbytes());
  refresh_alias(loan.alias, original);
}

// Products of nothing are none.
void Lending::take_workspace() {
  const auto is_empty = [](const Loan& loan) { return loan.original().numel() == 0; };
  if (std::any_of(loans_.begin(), loans_.end(), is_empty)) return;
  const bool has_vector =
      std::any_of(loans_.begin(), loans_.end(), [](const Loan& loan) { return loan.original().dim() == 1; });
  workspaces::take(*target_, runtime::current_stream_of(device_), op_.record, has_vector);
}

bool Lending::runs_in_place() {
  const runtime::Device& own = target();
  if (workspaces::may_be_taken(op_.record.shape_class)) [[unlikely]]
    take_workspace();
  // Without arithmetic nothing waits for a worker.
  if (!own.runs_kernels()) return true;
  if (has_asserted.load(std::memory_order_relaxed)) [[unlikely]]
    return false;  // run_lent() skips it
  const runtime::StreamRef stream = runtime::current_stream_of(device_);
  in_place_ = translated([&] { return runtime::in_place(own, stream); });
  stream_ = stream;
  return static_cast<bool>(in_place_);
}

void Lending::begin(runtime::StreamRef stream) {
  if (description_.has_value()) [[unlikely]] {
    description_->note_moved();  // outputs of the program's own may have been resized
    translated([&] { description_->begin(stream, op_name(), &op_.record); });
  }
}

void Lending::submit(runtime::StreamRef stream, const driver::Kernel& kernel,
                     const torch::jit::Stack& outputs, size_t num_outputs) {
  if (!description_.has_value()) [[likely]] {
    return runtime::submit(stream, kernel);
  }
  for (size_t i = outputs.size() - num_outputs; i < outputs.size(); ++i) description_->add_output(outputs[i]);
  if (num_outputs == 0) description_->add_written_inputs();
  description_->submit(kernel);
  description_->end();
}

void Lending::finish_described() {
  if (!description_->has_begun()) return;
  translated([&] { description_->end(); });
  if (teaches_cost_) [[unlikely]] {
    plan_.cost = runtime::simulated::last_cost();
    has_news_ = true;
  }
}

void Lending::run_kernel(Body body, void* context) {
  struct Run {
    Body body;
    void* context;
    OutputAllocations* output_allocations;
  } run{body, context, &allocations_};
  const auto with_output_allocations = [](void* pointer, driver::Stream) {
    const auto* run = static_cast<const Run*>(pointer);
    const OutputAllocations::Active active(*run->output_allocations);
    with_cuda_words([run] { run->body(run->context); });
  };
  driver::Kernel kernel{op_name(), with_output_allocations, nullptr, &run};
  kernel.in_place = true;
  if (in_place_ && !description_.has_value()) [[likely]] {
    const runtime::RunsKernels running(target_->allocator.get(), stream_.id);
    return translated([&] { runtime::run(in_place_, kernel); });
  }
  const runtime::StreamRef stream = in_place_ ? stream_ : runtime::current_stream_of(device());
  const runtime::RunsKernels running(target().allocator.get(), stream.id);
  if (description_.has_value()) translated([&] { description_->begin(stream, op_name(), &op_.record); });
  if (!target().runs_kernels()) {
    // The host infers the result's metadata: allocations are the host's own scalars.
    with_cuda_words([&] { body(context); });
    kernel.run = [](void*, driver::Stream) {};
    kernel.in_place = false;
  }
  translated([&] {
    if (!description_.has_value()) {
      runtime::submit(stream, kernel);
    } else if (in_place_) {
      description_->run(in_place_, kernel);
    } else {
      description_->submit(kernel);
    }
  });
}

}  // namespace loom::glue
