#include "torch/dispatch/queued_op.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/copy_ops.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>

#include "torch/core/python_line.h"

namespace loom::glue {

thread_local QueuedOpScope* QueuedOpScope::current_ = nullptr;

QueuedOpScope::QueuedOpScope(bool keeps_threads)
    : outer_(std::exchange(current_, this)),
      keeps_threads_(keeps_threads),
      threads_before_(at::get_num_threads()),
      num_threads_(threads_before_),
      no_autograd_(excluded_keys()),
      gradients_(false) {}

QueuedOpScope::~QueuedOpScope() {
  current_ = outer_;
  if (!keeps_threads_ && num_threads_ != threads_before_) at::set_num_threads(threads_before_);
}

void QueuedOpScope::set_threads(int wanted) {
  at::set_num_threads(wanted);
  num_threads_ = wanted;
}

namespace {

class QueuedOp {
 public:
  QueuedOp(const c10::OperatorHandle& op, torch::jit::Stack arguments, const Lending& lending,
           std::shared_ptr<const InferredOutputs> inferred, const PreparedOutputs& outputs, CapturedDraw draw,
           bool runs_once)
      : op_(op),
        arguments_(std::move(arguments)),
        inferred_(std::move(inferred)),
        name_(lending.op_name()),
        line_(python_line()),
        addresses_(outputs.addresses()),
        draw_(std::move(draw)),
        num_threads_(at::get_num_threads()),
        has_gradients_(c10::GradMode::is_enabled()),
        issuer_(std::this_thread::get_id()),
        runs_once_(runs_once) {
    for (const InferredOutputs::Allocation& allocation : inferred_->allocations) {
      places_.push_back({allocation.bytes, allocation.storage < 0
                                               ? nullptr
                                               : addresses_[static_cast<size_t>(allocation.storage)]});
    }
    // What the op's shape function foretold does not say what its kernel allocates: the first run does.
    learns_places_ = !runs_once_ && places_.empty() && !addresses_.empty();
  }

  const char* name() const { return name_.c_str(); }

  void run() {
    try {
      if (QueuedOpScope* scope = QueuedOpScope::current()) {
        run_in(*scope);
      } else {
        // A worker keeps the number of threads for its next op; a thread of the program has its own back.
        QueuedOpScope own(/*keeps_threads=*/std::this_thread::get_id() != issuer_);
        run_in(own);
      }
    } catch (c10::Error& error) {
      error.add_context(issued());
      throw;
    } catch (const python_error&) {
      throw;  // to add to it would take Python's lock
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      // In Python it is the same RuntimeError, with one more line.
      TORCH_CHECK(false, error.what(), "\n  ", issued());
    }
  }

 private:
  std::string issued() const {
    return "raised by the queued op '" + name_ + "'" + (line_.empty() ? "" : ", issued at " + line_);
  }

  void run_in(QueuedOpScope& scope) {
    scope.use_threads(num_threads_);
    scope.use_gradients(has_gradients_);
    if (draw_.random != nullptr) draw_.refill();
    OutputAllocations output_allocations =
        learns_places_ ? OutputAllocations::learning() : OutputAllocations(places_.data(), places_.size());
    torch::jit::Stack stack = runs_once_ ? std::move(arguments_) : arguments_;
    {
      const OutputAllocations::Active active(output_allocations);
      op_.redispatchBoxed(engine_keys(), &stack);
    }
    const size_t num_returns = inferred_->returns.size();
    TORCH_INTERNAL_ASSERT(stack.size() == num_returns, name_, " left ", stack.size(), " results");
    if (learns_places_) {
      for (const OutputAllocations::Allocation& allocation : output_allocations.seen())
        places_.push_back({allocation.bytes, nullptr});
    }
    for (size_t i = 0; i < num_returns; ++i)
      store_result(inferred_->returns[i], stack[i], output_allocations);
    learns_places_ = false;
  }

  void store_result(const InferredOutputs::Return& returned, const c10::IValue& result,
                    const OutputAllocations& output_allocations) {
    if (!returned.is_list) {
      if (result.isTensor()) store_result(returned.outputs.front(), result.toTensor(), output_allocations);
      return;
    }
    const auto tensors = result.toListRef();
    TORCH_CHECK(tensors.size() == returned.outputs.size(), name_, " returned ", tensors.size(),
                " tensors where it had returned ", returned.outputs.size(), " for such arguments before");
    for (size_t i = 0; i < tensors.size(); ++i)
      store_result(returned.outputs[i], tensors[i].toTensor(), output_allocations);
  }

  // A result that is not where its output was made is copied there.
  void store_result(const Output& output, const at::Tensor& result,
                    const OutputAllocations& output_allocations) {
    if (output.kind != Output::Kind::kNew) return;
    TORCH_CHECK(result.defined() && output.layout.fits(result), name_, " returned a ",
                result.defined() ? result.scalar_type() : output.layout.dtype, " tensor of shape ",
                result.defined() ? result.sizes() : at::IntArrayRef(), " where it had returned a ",
                output.layout.dtype, " one of shape ", at::IntArrayRef(output.layout.sizes),
                " for such arguments before");
    void* address = addresses_[output.index];
    if (result.numel() == 0 || result.storage().data() == address) return;
    const size_t bytes = inferred_->storage_bytes[output.index];
    if (result.strides() == at::IntArrayRef(output.layout.strides) &&
        result.storage_offset() == output.layout.offset && result.storage().nbytes() == bytes) {
      const int born = learns_places_ ? output_allocations.index_of(result.storage().data()) : -1;
      if (born >= 0) places_[static_cast<size_t>(born)].address = address;
      std::memcpy(address, result.storage().data(), bytes);
      return;
    }
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes,
        c10::DataPtr(address, nullptr, [](void*) {}, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false));
    at::Tensor place =
        at::detail::make_tensor<c10::TensorImpl>(std::move(storage), engine_keys(), result.dtype());
    place.unsafeGetTensorImpl()->set_sizes_and_strides(output.layout.sizes, output.layout.strides,
                                                       output.layout.offset);
    if (output.layout.is_conj) place._set_conj(true);
    if (output.layout.is_neg) place._set_neg(true);
    place.copy_(result);
  }

  const c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  const std::shared_ptr<const InferredOutputs> inferred_;
  const std::string name_, line_;
  const std::vector<void*> addresses_;
  std::vector<OutputAllocations::Place> places_;
  bool learns_places_;
  const CapturedDraw draw_;
  const int num_threads_;
  const bool has_gradients_;
  const std::thread::id issuer_;
  const bool runs_once_;
};

at::Tensor kept(const at::Tensor& tensor, const Lending& lending) {
  if (!tensor.defined() || lending.is_alias(tensor)) return tensor;
  at::Tensor copy = tensor.clone();
  // A number of Python's in the shape of a tensor does not decide the dtype of a result.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

// Tensors of the host's (scalars, index tensors) may change after the call: the op reads them as they are
// now.
void keep_host_tensors(torch::jit::Stack& arguments, const Lending& lending) {
  if (!lending.has_host_operands()) return;
  for (c10::IValue& value : arguments) {
    if (value.isTensor()) {
      value = kept(value.toTensor(), lending);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(kept(tensor, lending));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional(kept(*tensor, lending)) : std::nullopt);
      }
      value = std::move(list);
    }
  }
}

}  // namespace

void queue_op(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t num_arguments, Lending& lending,
              std::shared_ptr<const InferredOutputs> inferred, CapturedDraw draw) {
  const runtime::StreamRef stream = runtime::current_stream_of(lending.device());
  for (const InferredOutputs::Resized& resized : inferred->resized) {
    lending.resize_loan(resized.loan, resized.layout.sizes, resized.layout.strides);
  }
  const PreparedOutputs outputs(*inferred, lending.loans(), lending.device());
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(num_arguments);
  torch::jit::Stack arguments(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  keep_host_tensors(arguments, lending);
  const bool is_captured = translated([&] { return runtime::is_captured(stream); });
  auto* queued = new QueuedOp(op, std::move(arguments), lending, std::move(inferred), outputs,
                              std::move(draw), !is_captured);
  const driver::Kernel kernel{queued->name(), [](void* context) { static_cast<QueuedOp*>(context)->run(); },
                              [](void* context) { delete static_cast<QueuedOp*>(context); }, queued};
  translated([&] { lending.submit(stream, kernel, outputs.storages()); });
  outputs.push(*stack);
}

namespace {

// A tensor without memory that has the metadata of another, the place in its storage included.
at::Tensor shape_of(const at::Tensor& tensor) {
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                        static_cast<size_t>(tensor.storage_offset()));
  const at::Tensor whole = at::detail::empty_strided_meta({static_cast<int64_t>(bytes / tensor.itemsize())},
                                                          {1}, tensor.scalar_type());
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(whole.storage()), whole.key_set(), whole.dtype());
  part.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return part;
}

}  // namespace

std::shared_ptr<const InferredOutputs> infer_outputs(const c10::OperatorHandle& op,
                                                     const torch::jit::Stack& stack, size_t num_arguments,
                                                     size_t num_returns, const Lending& lending,
                                                     std::string& reason) {
  c10::SmallVector<Loan, 6> loans;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> stand_ins;
  const auto stand_in = [&](const at::Tensor& tensor) -> at::Tensor {
    if (!tensor.defined() || (tensor.dim() == 0 && !lending.is_alias(tensor))) return tensor;
    at::Tensor& known = stand_ins[tensor.unsafeGetTensorImpl()];
    if (!known.defined()) known = shape_of(tensor);
    return known;
  };
  torch::jit::Stack shapes;
  for (size_t i = stack.size() - num_arguments; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      shapes.emplace_back(stand_in(value.toTensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(stand_in(tensor));
      shapes.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional(stand_in(*tensor)) : std::nullopt);
      }
      shapes.emplace_back(std::move(list));
    } else if (value.isGenerator()) {
      shapes.emplace_back();
    } else if (value.isDevice()) {
      shapes.emplace_back(c10::Device(c10::kMeta));
    } else {
      shapes.push_back(value);
    }
  }
  for (const Loan& loan : lending.loans())
    loans.push_back({loan.original, stand_in(loan.alias), loan.is_written});
  try {
    op.callBoxed(&shapes);
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
    return nullptr;
  } catch (const std::exception& error) {  // one of Python's as well: most shape functions are written in it
    reason = error.what();
    return nullptr;
  }
  return std::make_shared<const InferredOutputs>(
      observe(shapes, num_returns, loans, OutputAllocations::learning()));
}

}  // namespace loom::glue
