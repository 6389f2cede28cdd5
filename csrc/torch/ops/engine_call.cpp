#include "torch/ops/engine_call.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/runtime.h"
#include "torch/cuda/words.h"
#include "torch/engine/half_products.h"
#include "torch/engine/lacking_kernels.h"
#include "torch/engine/output_allocation.h"

namespace loom::glue {

namespace {

using Type = c10::ScalarType;

// What stands for a dtype that a kernel lacks.
Type wide_of(Type narrow) {
  switch (narrow) {
    case Type::Half:
    case Type::BFloat16:
      return Type::Float;
    case Type::ComplexHalf:
      return Type::ComplexFloat;
    case Type::Bool:
      return Type::Byte;
    default:
      return narrow;
  }
}

// The dtype of a result that is `type` where the operands are widened.
Type narrowed(Type type, Type narrow) {
  if (type == wide_of(narrow)) return narrow;
  const bool is_half = narrow == Type::Half || narrow == Type::ComplexHalf;
  if (is_half && type == Type::Float) return Type::Half;
  if (is_half && type == Type::ComplexFloat) return Type::ComplexHalf;
  return type;
}

bool is_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// The tensors of an argument.
std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorVector();
  return is_tensor(value) ? std::vector{value.toTensor()} : std::vector<at::Tensor>();
}

bool is_in(DtypeSet set, Type type) { return (set & set_of({type})) != 0; }

bool names_dtype(const c10::Argument& formal, const c10::IValue& value) {
  const auto optional = formal.real_type()->cast<c10::OptionalType>();
  const c10::TypePtr type = optional ? optional->getElementType() : formal.real_type();
  return type->kind() == c10::TypeKind::ScalarTypeType && value.isInt();
}

// Whether all that a call reads is of the dtype, and what it writes to, too, unless it names another.
bool is_of_one_dtype(const Op& op, c10::ArrayRef<c10::IValue> arguments, Type type) {
  const auto& formal = op.handle.schema().arguments();
  Type written = type;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (names_dtype(formal[i], arguments[i])) written = arguments[i].toScalarType();
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const at::Tensor& tensor : tensors_of(arguments[i])) {
      if (tensor.scalar_type() != (formal[i].is_out() ? written : type)) return false;
    }
  }
  return true;
}

// The dtype that the op's operands are promoted to, if the call must be widened.
std::optional<Type> narrow_of(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  const DtypeSet any = op.widened_dtypes | op.widened_sparse_dtypes;
  // Most calls end here.
  if (std::none_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
        if (is_tensor(value)) return is_in(any, value.toTensor().scalar_type());
        const std::vector<at::Tensor> listed = tensors_of(value);
        return std::any_of(listed.begin(), listed.end(),
                           [&](const at::Tensor& tensor) { return is_in(any, tensor.scalar_type()); });
      })) {
    return std::nullopt;
  }
  const auto& formal = op.handle.schema().arguments();
  std::vector<at::Tensor> operands;
  bool is_sparse = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (formal[i].is_out()) continue;
    for (const at::Tensor& tensor : tensors_of(arguments[i])) {
      if (tensor.is_meta()) return std::nullopt;
      is_sparse |= tensor.layout() != c10::kStrided;
      operands.push_back(tensor);
    }
  }
  const DtypeSet lacking = is_sparse ? op.widened_sparse_dtypes : op.widened_dtypes;
  if (operands.empty() || lacking == 0) return std::nullopt;
  const Type type = at::native::result_type(operands);
  if (!is_in(lacking, type)) return std::nullopt;
  // The engine's kernel says what is wrong with dtypes.
  if (op.facts.has(op_flag::kOneDtype) && !is_of_one_dtype(op, arguments, type)) return std::nullopt;
  return type;
}

// The tensor in another dtype, in no more memory than it has elements: of an expanded one, or of windows that
// overlap, the memory is converted once.
at::Tensor converted(const at::Tensor& tensor, Type type) {
  if (tensor.layout() != c10::kStrided || tensor.numel() == 0) return tensor.to(type);
  int64_t span = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) span += (tensor.size(i) - 1) * tensor.stride(i);
  if (tensor.numel() <= span) return tensor.to(type);
  return tensor.as_strided({span}, {1}).to(type).as_strided(tensor.sizes(), tensor.strides());
}

void store(const at::Tensor& result, const at::Tensor& out) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  if (out.layout() == c10::kStrided) {
    at::native::resize_output(out, result.sizes());
  } else {
    out.resize_as_sparse_(result);
  }
  out.copy_(result);
}

// The outs of a call, or the operand that it changes in place.
std::vector<at::Tensor> written_by(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& formal = op.handle.schema().arguments();
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < formal.size(); ++i) {
    const bool is_in_place = i == 0 && formal[i].alias_info() != nullptr && formal[i].alias_info()->isWrite();
    if (formal[i].is_out() || is_in_place) written.push_back(arguments[i].toTensor());
  }
  return written;
}

// Whether what the call writes to can take the results of a kernel of ours. Otherwise the engine's kernel is
// called, which says what is wrong.
bool can_take_results(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& formal = op.handle.schema().arguments();
  if (op.is_foreach || op.num_returns == 0) return !formal.back().is_out();
  if (!op.writes) return true;
  const std::vector<at::Tensor> written = written_by(op, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const at::Tensor& out : written) {
      if (names_dtype(formal[i], arguments[i]) && arguments[i].toScalarType() != out.scalar_type())
        return false;
      if (is_tensor(arguments[i]) &&
          at::get_overlap_status(out, arguments[i].toTensor()) == at::MemOverlapStatus::Partial)
        return false;
    }
  }
  const bool has_places = written.size() == 2;  // beside values, as those of topk
  return !has_places || (written[0].scalar_type() == arguments[0].toTensor().scalar_type() &&
                         written[1].scalar_type() == Type::Long);
}

// Leaves on the stack what a kernel of ours has computed, in the place of its arguments: in what the op
// writes to, or in memory of the device.
void put_results(const Op& op, torch::jit::Stack& stack, const std::vector<at::Tensor>& results) {
  const size_t first = stack.size() - op.num_arguments;
  if (op.num_returns == 0) {  // it has written to the tensors of its lists
    stack.resize(first);
    return;
  }
  if (op.is_foreach) {
    stack.resize(first);
    c10::List<at::Tensor> own;
    for (const at::Tensor& result : results) own.push_back(result.clone());
    stack.emplace_back(std::move(own));
    return;
  }
  const std::vector<at::Tensor> outs = written_by(op, c10::ArrayRef<c10::IValue>(stack).slice(first));
  const bool is_in_place = !outs.empty() && !op.handle.schema().arguments().back().is_out();
  TORCH_CHECK(!is_in_place || outs[0].layout() != c10::kStrided || outs[0].sizes() == results[0].sizes(),
              "output with shape ", outs[0].sizes(), " doesn't match the broadcast shape ",
              results[0].sizes());
  stack.resize(first);
  for (size_t i = 0; i < results.size(); ++i) {
    if (i < outs.size() && !results[i].is_same(outs[i])) store(results[i], outs[i]);
    stack.emplace_back(i < outs.size() ? outs[i] : results[i].clone());
  }
}

// While it lives, the device is the current one.
class OnDevice {
 public:
  explicit OnDevice(int device) : previous_(runtime::current_device()) {
    if (device >= 0) runtime::set_current_device(device);
  }
  ~OnDevice() { runtime::set_current_device(previous_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const int previous_;
};

// Whether the op's own kernel has computed the call; its results are then on the stack.
bool is_computed_apart(const Op& op, torch::jit::Stack& stack, int device) {
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - op.num_arguments);
  if (!can_take_results(op, arguments)) return false;
  std::vector<at::Tensor> results;
  {
    const OutputAllocations::Suspended on_host;
    const OnDevice guard(device);
    results = op.own_kernel(arguments);
  }
  if (!results.empty()) put_results(op, stack, results);
  return !results.empty();
}

// Whether the call draws CUDA's numbers, and has drawn them; its results are then on the stack.
bool is_drawn(const Op& op, torch::jit::Stack& stack) {
  const size_t first = stack.size() - op.num_arguments;
  const CudaDraw* start = nullptr;
  for (const Argument& argument : op.arguments) {
    const c10::IValue& value = stack[first + argument.index];
    if (argument.kind == ArgKind::kGenerator && value.isGenerator())
      start = cuda_draw_of(value.toGenerator());
  }
  if (start == nullptr) return false;
  cuda_random::Draws draws(*start);
  std::vector<at::Tensor> results;
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(first);
  if (op.random->makes_results) {
    results = op.random->kernel(arguments, draws);
    stack.resize(first);
    for (at::Tensor& result : results) stack.emplace_back(std::move(result));
    return true;
  }
  {
    const OutputAllocations::Suspended on_host;
    results = op.random->kernel(arguments, draws);
  }
  if (!results.empty()) put_results(op, stack, results);
  return !results.empty();
}

// The arguments of one call in the wider dtype, and what becomes of its results.
class WideCall {
 public:
  WideCall(const Op& op, Type narrow, torch::jit::Stack& stack)
      : op_(op), narrow_(narrow), stack_(stack), first_(stack.size() - op.num_arguments) {
    const auto& formal = op.handle.schema().arguments();
    for (size_t i = 0; i < formal.size(); ++i) {
      const c10::IValue& value = stack[first_ + i];
      if (formal[i].is_out() && value.isTensor()) outs_.push_back(value.toTensor());
      if (names_dtype(formal[i], value)) asked_ = value.toScalarType();
    }
  }

  // `call` runs the op on the stack.
  template <typename Call>
  void run(Call call) {
    {
      const OutputAllocations::Suspended on_host;
      const auto given = c10::ArrayRef<c10::IValue>(stack_).slice(first_);
      const std::string& name = op_.handle.schema().name();
      std::optional<at::Tensor> made = sums_of_halves(name, given);
      if (!made.has_value()) made = compute_of_parts(name, given);
      if (made.has_value()) {
        if (outs_.empty()) {
          for (const at::Tensor& own : written_by(op_, given)) written_.push_back({own, *made});  // in place
        }
        stack_.resize(first_);
        stack_.emplace_back(*std::move(made));
      } else {
        widen();
        call();
      }
    }
    for (const Written& written : written_) {
      if (!written.own.is_same(written.wide)) store(narrow(written.wide), written.own);
    }
    for (size_t i = 0; i < op_.num_returns; ++i) put_narrow(stack_[first_ + i], i);
  }

 private:
  struct Written {
    at::Tensor own, wide;
  };

  void widen() {
    const auto& formal = op_.handle.schema().arguments();
    for (size_t i = 0; i < formal.size(); ++i) {
      c10::IValue& value = stack_[first_ + i];
      if (formal[i].is_out() && value.isTensor()) {
        value = empty_wide(value.toTensor());
      } else if (is_tensor(value)) {
        value = widened(formal[i], value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> listed = value.toTensorVector();
        for (at::Tensor& tensor : listed) tensor = widened(formal[i], tensor);
        value = std::move(listed);
      } else if (names_dtype(formal[i], value) && value.toScalarType() == narrow_) {
        value = static_cast<int64_t>(wide_of(narrow_));
      }
    }
  }

  // Sparse kernels require an out of the final size; others resize it, and warn unless it is empty.
  at::Tensor empty_wide(const at::Tensor& out) const {
    const auto options = out.options().dtype(wide_of(out.scalar_type()));
    return op_.widened_sparse_dtypes != 0 ? at::empty(out.sizes(), options) : at::empty({0}, options);
  }

  // What the op writes to is copied back. A list may name a tensor twice: the second write builds on the
  // first.
  at::Tensor widened(const c10::Argument& formal, const at::Tensor& tensor) {
    const bool is_written = formal.alias_info() != nullptr && formal.alias_info()->isWrite();
    if (is_written) {
      for (const Written& written : written_) {
        if (tensor.is_same(written.own)) return written.wide;
      }
    }
    at::Tensor wide = formal.is_out() ? empty_wide(tensor) : converted(tensor, wide_of(tensor.scalar_type()));
    if (is_written) written_.push_back({tensor, wide});
    return wide;
  }

  at::Tensor narrow(const at::Tensor& wide) const {
    return wide.to(asked_.value_or(narrowed(wide.scalar_type(), narrow_)));
  }

  void put_narrow(c10::IValue& result, size_t place) {
    if (result.isTensorList()) {
      std::vector<at::Tensor> listed = result.toTensorVector();
      for (at::Tensor& tensor : listed) tensor = own_of(tensor);
      result = std::move(listed);
    } else if (is_tensor(result) && place < outs_.size()) {
      store(narrow(result.toTensor()), outs_[place]);
      result = outs_[place];
    } else if (is_tensor(result)) {
      result = own_of(result.toTensor());
    }
  }

  // What a result is in the place of: an operand that was written to, or the same in the narrow dtype.
  at::Tensor own_of(const at::Tensor& tensor) const {
    for (const Written& written : written_) {
      if (tensor.is_same(written.wide)) return written.own;
    }
    return narrow(tensor);
  }

  const Op& op_;
  const Type narrow_;
  torch::jit::Stack& stack_;
  const size_t first_;
  std::optional<Type> asked_;  // the dtype that the call asks of its results
  std::vector<at::Tensor> outs_;
  std::vector<Written> written_;
};

bool is_widening(const Op& op) { return (op.widened_dtypes | op.widened_sparse_dtypes) != 0; }

template <typename Call>
void call_or_widen(const Op& op, torch::jit::Stack& stack, Call call) {
  if (is_widening(op)) [[unlikely]] {
    const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - op.num_arguments);
    if (const std::optional<Type> narrow = narrow_of(op, arguments))
      return with_cuda_words([&] { WideCall(op, *narrow, stack).run(call); });
  }
  with_cuda_words(call);
}

}  // namespace

void call_kernel(const Op& op, c10::DispatchKeySet keys, torch::jit::Stack* stack, int device) {
  if (op.own_kernel != nullptr && is_computed_apart(op, *stack, device)) [[unlikely]]
    return;
  if (op.random != nullptr && is_drawn(op, *stack)) [[unlikely]]
    return;
  call_or_widen(op, *stack, [&] { op.handle.redispatchBoxed(keys, stack); });
}

void call_kernel_by_keys(const Op& op, torch::jit::Stack* stack) {
  call_or_widen(op, *stack, [&] { op.handle.callBoxed(stack); });
}

}  // namespace loom::glue
