#include "torch/dispatch/infer.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <unordered_map>

namespace loom::glue {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

std::atomic<int64_t> num_known{0}, num_cpp{0}, num_python{0}, num_unknown{0};

class SilentHandler final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

// What runs in it is part of no program (the lending has an EngineScope), and what it warns of, the op warns
// of when it runs.
class InferenceScope {
  const ShapeFunctionScope below_programs_;
  SilentHandler silent_;
  const c10::WarningUtils::WarningHandlerGuard unwarned_{&silent_};
};

// A tensor without memory that has the metadata of another, the place in its storage included.
at::Tensor shape_of(const at::Tensor& tensor) {
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                        static_cast<size_t>(tensor.storage_offset()));
  const at::Tensor whole = at::detail::empty_strided_meta({static_cast<int64_t>(bytes / tensor.itemsize())},
                                                          {1}, tensor.scalar_type());
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(whole.storage()), whole.key_set() | (tensor.key_set() & kMathBits),
      whole.dtype());
  part.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) part.unsafeGetTensorImpl()->set_wrapped_number(true);
  return part;
}

// The arguments of a call, their tensors replaced by some without memory.
class StandIns {
 public:
  StandIns(const torch::jit::Stack& stack, size_t num_arguments, const Lending& lending) : lending_(lending) {
    for (size_t i = stack.size() - num_arguments; i < stack.size(); ++i) arguments.push_back(of(stack[i]));
    for (const Loan& loan : lending.loans()) {
      loans.push_back({loan.original, of(loan.alias), loan.is_written});
    }
  }

  torch::jit::Stack arguments;
  c10::SmallVector<Loan, 6> loans;

 private:
  at::Tensor of(const at::Tensor& tensor) {
    // A number in the shape of a tensor of the host's decides by its value, as an exponent or a bound.
    if (!tensor.defined() || (tensor.dim() == 0 && !lending_.is_alias(tensor))) return tensor;
    at::Tensor& known = known_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    known = shape_of(tensor);
    // Views of one storage stay views of one.
    for (const auto& [other, stand_in] : known_) {
      if (stand_in.is_same(known) || !is_of_same_storage(other, tensor)) continue;
      known.unsafeGetTensorImpl()->set_storage_keep_dtype(stand_in.storage());
      break;
    }
    return known;
  }

  static bool is_of_same_storage(const c10::TensorImpl* left, const at::Tensor& right) {
    return left->unsafe_storage().unsafeGetStorageImpl() ==
           right.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  }

  c10::IValue of(const c10::IValue& value) {
    if (value.isTensor()) return of(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(of(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional(of(*tensor)) : std::nullopt);
      }
      return list;
    }
    if (value.isGenerator()) return {};
    if (value.isDevice()) return c10::Device(c10::kMeta);
    return value;
  }

  const Lending& lending_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;
};

// Whether an error of a shape function only says that it has no answer.
bool is_an_answer(PyObject* type) {
  return PyErr_GivenExceptionMatches(type, PyExc_Exception) != 0 &&
         PyErr_GivenExceptionMatches(type, PyExc_MemoryError) == 0;
}

// Calls the shape function; false: it has no answer, and `reason` says why.
template <typename F>
bool asks(F&& call, std::string& reason) {
  try {
    call();
    return true;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (python_error& error) {
    const pybind11::gil_scoped_acquire gil;
    if (error.type == nullptr) error.persist();
    if (!is_an_answer(error.type)) throw;
    reason = error.what();
  } catch (pybind11::error_already_set& error) {
    const pybind11::gil_scoped_acquire gil;
    if (!is_an_answer(error.type().ptr())) {
      error.restore();
      python_error own;
      own.persist();
      throw own;
    }
    reason = error.what();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return false;
}

bool has_strides(const c10::SmallVector<Loan, 6>& loans) {
  return std::any_of(loans.begin(), loans.end(), [](const Loan& loan) {
    return !loan.is_written && loan.alias.layout() == c10::kStrided && !loan.alias.is_contiguous();
  });
}

std::shared_ptr<const InferredOutputs> infer(Op& op, const torch::jit::Stack& stack, const Lending& lending,
                                             std::string& reason) {
  if (op.facts.has(op_flag::kEngineInfers)) {
    reason = "only a run of it shows that";
    return nullptr;
  }
  const bool in_cpp = op.shape_function().isValid();
  if (!in_cpp && !op.handle.hasComputedKernelForDispatchKey(DispatchKey::Meta)) {
    reason = "it has no shape function";
    return nullptr;
  }
  StandIns call(stack, op.num_arguments, lending);
  const bool answers = asks(
      [&] {
        const InferenceScope scope;
        if (in_cpp) {
          op.shape_function().callBoxed(op.handle, DispatchKeySet(DispatchKey::Meta), &call.arguments);
        } else {
          op.handle.redispatchBoxed(DispatchKeySet(DispatchKey::Meta), &call.arguments);
        }
      },
      reason);
  if (!answers) return nullptr;
  auto outputs = observe(call.arguments, op.num_returns, call.loans, nullptr);
  // Python ones make an `out` contiguous, where kernels give it the strides of their operands.
  if (!in_cpp && !outputs->resized.empty() && has_strides(call.loans)) {
    reason = "it resizes an operand, and the strides of others decide how";
    return nullptr;
  }
  (in_cpp ? num_cpp : num_python).fetch_add(1, std::memory_order_relaxed);
  return outputs;
}

// What a shape function said of the run that this thread begins.
struct Expected {
  std::shared_ptr<const InferredOutputs> outputs;
  std::string reason;
};
thread_local Expected expected;
std::atomic<bool> is_checked{false};

struct Checks {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, std::string>> found;
};
Checks& checks() {
  static auto* instance = new Checks;
  return *instance;
}

void note_check(const Op& op, const Expected& said, const InferredOutputs& shown) {
  std::string finding = "no answer", example = said.reason;
  if (said.outputs != nullptr) std::tie(finding, example) = compare(*said.outputs, shown);
  const std::lock_guard<std::mutex> lock(checks().mutex);
  auto& [count, first] = checks().found[{op.name(), finding}];
  if (count++ == 0) first = example.substr(0, 300);
}

}  // namespace

void check_inference(bool is_on) { is_checked.store(is_on, std::memory_order_relaxed); }

std::vector<InferenceCheck> inference_checks() {
  const std::lock_guard<std::mutex> lock(checks().mutex);
  std::vector<InferenceCheck> all;
  for (const auto& [key, value] : checks().found)
    all.push_back({key.first, key.second, value.first, value.second});
  return all;
}

InferenceKey key_of(const Op& op, const torch::jit::Stack& stack, const Lending& lending) {
  if (!op.can_queue || lending.has_sparse()) return {};
  if (op.is_index && has_mask(op, stack)) return {};
  InferenceKey key;
  OperandOrder operands(lending.loans());
  // The default dtype is that of int / int; an LSTM keeps a workspace only where gradients are wanted.
  key.push_back(int64_t{op.record.id} << 32 |
                static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) << 1 |
                int64_t{c10::GradMode::is_enabled()});
  const size_t first = stack.size() - op.num_arguments;
  for (size_t i = 0; i < op.num_arguments; ++i) {
    if (!add_to_key(key, stack[first + i], op.key_parts[i], operands)) return {};
  }
  return key;
}

InferenceKey key_to_teach(Op& op, const torch::jit::Stack& stack, const Lending& lending) {
  if (!lending.runs_kernels()) return {};
  InferenceKey key = key_of(op, stack, lending);
  if (is_checked.load(std::memory_order_relaxed) && !key.empty()) [[unlikely]] {
    expected = Expected{};
    expected.outputs = infer(op, stack, lending, expected.reason);
  }
  return key;
}

void teach(const Op& op, const InferenceKey& key, const torch::jit::Stack& stack, const Lending& lending) {
  auto shown = observe(stack, op.num_returns, lending.loans(), &lending.output_allocations());
  if (is_checked.load(std::memory_order_relaxed)) [[unlikely]] {
    note_check(op, expected, *shown);
  }
  learn_outputs(key, std::move(shown));
}

std::shared_ptr<const InferredOutputs> find_or_infer(Op& op, const torch::jit::Stack& stack,
                                                     const Lending& lending, const InferenceKey& key,
                                                     std::string& reason) {
  if (auto known = find_inferred(key)) {
    num_known.fetch_add(1, std::memory_order_relaxed);
    return known;
  }
  auto inferred = infer(op, stack, lending, reason);
  if (inferred == nullptr) {
    num_unknown.fetch_add(1, std::memory_order_relaxed);
  } else {
    learn_outputs(key, inferred);
  }
  return inferred;
}

bool has_mask(const Op& op, const torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.num_arguments; i < stack.size(); ++i) {
    if (!stack[i].isList()) continue;
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (!element.isTensor() || !element.toTensor().defined()) continue;
      const c10::ScalarType type = element.toTensor().scalar_type();
      if (type == c10::kBool || type == c10::kByte) return true;
    }
  }
  return false;
}

InferenceCounts inference_counts() {
  return {num_known.load(std::memory_order_relaxed), num_cpp.load(std::memory_order_relaxed),
          num_python.load(std::memory_order_relaxed), num_unknown.load(std::memory_order_relaxed)};
}

}  // namespace loom::glue
