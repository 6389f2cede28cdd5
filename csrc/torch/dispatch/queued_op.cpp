#include "torch/dispatch/queued_op.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/DefaultDtype.h>

#include <cstring>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>

#include "torch/core/python_errors.h"
#include "torch/core/python_line.h"
#include "torch/dispatch/device_assert.h"
#include "torch/engine/alias.h"
#include "torch/engine/integer_division.h"
#include "torch/inference/default_dtype.h"
#include "torch/loans/replace_tensors.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

thread_local QueuedOpScope* QueuedOpScope::current_ = nullptr;

QueuedOpScope::QueuedOpScope(bool keeps_threads)
    : outer_(std::exchange(current_, this)),
      keeps_threads_(keeps_threads),
      threads_before_(at::get_num_threads()),
      num_threads_(threads_before_),
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
  using Allocations = InferredOutputs::Allocations;

 public:
  QueuedOp(const Op& op, torch::jit::Stack arguments, Lending& lending,
           std::shared_ptr<const InferredOutputs> inferred, const PreparedOutputs& outputs, CapturedDraw draw,
           bool runs_once)
      : op_(op),
        arguments_(std::move(arguments)),
        engine_keys_(lending.engine_keys()),
        device_(lending.device()),
        inferred_(std::move(inferred)),
        line_(python_line()),
        addresses_(outputs.addresses(lending.chosen())),
        draw_(std::move(draw)),
        num_threads_(at::get_num_threads()),
        has_gradients_(c10::GradMode::is_enabled()),
        default_dtype_(c10::get_default_dtype_as_scalartype()),
        issuer_(std::this_thread::get_id()),
        runs_once_(runs_once) {
    find_places();
  }

  const char* name() const { return op_.name(); }

  void run() {
    // In the program's thread, where a graph is replayed, no thread waits yet. A worker's stream keeps the
    // failure for threads that already wait for it and miss the guard.
    const bool is_in_program = std::this_thread::get_id() == issuer_;
    if (has_asserted.load(std::memory_order_relaxed)) [[unlikely]] {
      if (is_in_program) return;
      raise_device_assert();
    }
    try {
      if (QueuedOpScope* scope = QueuedOpScope::current()) {
        run_in(*scope);
      } else {
        // A worker keeps the number of threads for its next op; a thread of the program has its own back.
        QueuedOpScope own(/*keeps_threads=*/!is_in_program);
        run_in(own);
      }
    } catch (c10::Error& error) {
      if (are_errors_examined && !has_run_ && is_caused_by_values(op_, engine_keys_, arguments_, error)) {
        if (!has_device_asserts) rethrow_as_assert(error, issued());
        note_device_assert(name(), error.what_without_backtrace(), line_);
        if (is_in_program) return;
        raise_device_assert();
      }
      error.add_context(issued());
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      if (is_python_error(error)) throw;  // to add to it would take Python's lock
      // In Python it is the same RuntimeError, with one more line.
      TORCH_CHECK(false, error.what(), "\n  ", issued());
    }
  }

 private:
  std::string issued() const {
    return std::string("raised by the queued op '") + name() + "'" +
           (line_.empty() ? "" : ", issued at " + std::string(line_));
  }

  void run_in(QueuedOpScope& scope) {
    scope.use_threads(num_threads_);
    scope.use_gradients(has_gradients_);
    has_run_ = false;
    if (draw_.random != nullptr) draw_.refill();
    // What a shape function foretold does not say what the kernel allocates: the first run does.
    const bool learns = !has_places_ && !addresses_.empty() && !find_places();
    OutputAllocations output_allocations =
        learns ? OutputAllocations::learning() : OutputAllocations(places_.data(), places_.size());
    torch::jit::Stack stack = runs_once_ && !are_errors_examined ? std::move(arguments_) : arguments_;
    if (op_.facts.has(op_flag::kDividesIntegers) && !op_.takes_zeros) {
      prepare_integer_division(stack, stack.size(), /*takes_zeros=*/has_device_asserts);
    }
    if (c10::get_default_dtype_as_scalartype() != default_dtype_) [[unlikely]] {
      keep_default_dtype(op_, stack, *inferred_, default_dtype_);
    }
    {
      const OutputAllocations::Active active(output_allocations);
      call_kernel(op_, engine_keys_, &stack, device_);
    }
    has_run_ = true;  // an error from here on is none of the kernel's
    const size_t num_returns = inferred_->returns.size();
    TORCH_INTERNAL_ASSERT(stack.size() == num_returns, name(), " left ", stack.size(), " results");
    Allocations shown;
    if (learns) {
      for (const auto& allocation : output_allocations.seen()) shown.push_back({allocation.bytes, -1});
    }
    for (size_t i = 0; i < num_returns; ++i)
      store_result(inferred_->returns[i], stack[i], output_allocations, shown);
    if (learns) inferred_->learn_allocations(std::move(shown));
  }

  // Where the kernel's allocations go, if a run has shown it.
  bool find_places() {
    const Allocations* known = inferred_->allocations();
    if (known == nullptr) return false;
    for (const InferredOutputs::Allocation& allocation : *known) {
      places_.push_back({allocation.bytes, allocation.storage < 0
                                               ? nullptr
                                               : addresses_[static_cast<size_t>(allocation.storage)]});
    }
    return has_places_ = true;
  }

  void store_result(const InferredOutputs::Return& returned, const c10::IValue& result,
                    const OutputAllocations& output_allocations, Allocations& shown) {
    if (!returned.is_list) {
      if (result.isTensor())
        store_result(returned.outputs.front(), result.toTensor(), output_allocations, shown);
      return;
    }
    const auto tensors = result.toListRef();
    TORCH_CHECK(tensors.size() == returned.outputs.size(), name(), " returned ", tensors.size(),
                " tensors where it had returned ", returned.outputs.size(), " for such arguments before");
    for (size_t i = 0; i < tensors.size(); ++i)
      store_result(returned.outputs[i], tensors[i].toTensor(), output_allocations, shown);
  }

  // A result that is not where its output was made is copied there.
  void store_result(const Output& output, const at::Tensor& result,
                    const OutputAllocations& output_allocations, Allocations& shown) {
    if (output.kind != Output::Kind::kNew) return;
    TORCH_CHECK(result.defined() && output.layout.fits(result), name(), " returned a ",
                result.defined() ? result.scalar_type() : output.layout.dtype, " tensor of shape ",
                result.defined() ? result.sizes() : at::IntArrayRef(), " where it had returned a ",
                output.layout.dtype, " one of shape ", at::IntArrayRef(output.layout.sizes),
                " for such arguments before");
    void* address = addresses_[output.index];
    if (result.numel() == 0 || result.storage().data() == address) return;
    const size_t bytes = inferred_->storage_bytes[output.index];
    if (result._is_zerotensor()) {  // of PyTorch's forward-mode gradients: it has no memory
      std::memset(address, 0, bytes);
      return;
    }
    if (result.strides() == at::IntArrayRef(output.layout.strides) &&
        result.storage_offset() == output.layout.offset && result.storage().nbytes() == bytes) {
      const int born = shown.empty() ? -1 : output_allocations.index_of(result.storage().data());
      if (born >= 0) shown[static_cast<size_t>(born)].storage = static_cast<int>(output.index);
      std::memcpy(address, result.storage().data(), bytes);
      return;
    }
    at::Tensor place = at::detail::make_tensor<c10::TensorImpl>(
        alias_storage(address, bytes, result.device().type()), engine_keys_, result.dtype());
    place.unsafeGetTensorImpl()->set_sizes_and_strides(output.layout.sizes, output.layout.strides,
                                                       output.layout.offset);
    if (output.layout.is_conj) place._set_conj(true);
    if (output.layout.is_neg) place._set_neg(true);
    place.copy_(result);
  }

  const Op& op_;
  torch::jit::Stack arguments_;
  const c10::DispatchKeySet engine_keys_;
  const int device_;
  const std::shared_ptr<const InferredOutputs> inferred_;
  const std::string_view line_;
  const std::vector<void*> addresses_;
  std::vector<OutputAllocations::Place> places_;
  bool has_places_ = false;
  bool has_run_ = false;
  const CapturedDraw draw_;
  const int num_threads_;
  const bool has_gradients_;
  const c10::ScalarType default_dtype_;
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
    value = with_tensors_replaced(value, [&](const at::Tensor& tensor) { return kept(tensor, lending); });
  }
}

}  // namespace

void queue_op(const Op& op, torch::jit::Stack* stack, Lending& lending,
              std::shared_ptr<const InferredOutputs> inferred, CapturedDraw draw) {
  const runtime::StreamRef stream = runtime::current_stream_of(lending.device());
  lending.begin(stream);
  for (const InferredOutputs::Resized& resized : inferred->resized) {
    lending.resize_loan(resized.loan, resized.layout.sizes, resized.layout.strides);
  }
  const PreparedOutputs outputs(*inferred, lending.loans(), lending.device());
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.num_arguments);
  torch::jit::Stack arguments(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  keep_host_tensors(arguments, lending);
  const bool is_captured = translated([&] { return runtime::is_captured(stream); });
  const size_t num_returns = inferred->returns.size();
  auto* queued = new QueuedOp(op, std::move(arguments), lending, std::move(inferred), outputs,
                              std::move(draw), !is_captured);
  const driver::Kernel kernel{queued->name(),
                              [](void* context, driver::Stream) { static_cast<QueuedOp*>(context)->run(); },
                              [](void* context) { delete static_cast<QueuedOp*>(context); }, queued};
  outputs.push(*stack);
  translated([&] { lending.submit(stream, kernel, *stack, num_returns); });
}

}  // namespace loom::glue
