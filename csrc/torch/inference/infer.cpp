#include "torch/inference/infer.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include "torch/core/python_errors.h"
#include "torch/inference/stand_ins.h"
#include "torch/loans/silence.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

std::atomic<int64_t> num_known{0}, num_cpp{0}, num_python{0}, num_engine{0}, num_unknown{0};

// What runs in it is part of no program; the lending has an EngineScope.
class InferenceScope {
  const ShapeFunctionScope below_programs_;
  const Silence silence_;
};

// Calls the shape function; false: it has no answer, and `reason` says why.
template <typename F>
bool asks(F&& call, std::string& reason) {
  try {
    call();
    return true;
  } catch (...) {
    reason = text_of_refusal();
  }
  return false;
}

bool has_sizes_of(const InferredOutputs& left, const InferredOutputs& right) {
  return std::equal(left.resized.begin(), left.resized.end(), right.resized.begin(), right.resized.end(),
                    [](const InferredOutputs::Resized& each, const InferredOutputs::Resized& other) {
                      return each.loan == other.loan && each.layout.sizes == other.layout.sizes;
                    });
}

constexpr size_t kMostRehearsed = size_t{1} << 28, kMostChecked = size_t{1} << 26;  // bytes

// What the engine's kernel does to operands of such contents. The stream is not waited for; the price is one
// run of the kernel.
std::shared_ptr<const InferredOutputs> rehearse(Op& op, const torch::jit::Stack& stack,
                                                const Lending& lending, StandIns::Contents contents,
                                                std::string& reason) {
  if (!lending.runs_kernels() || bytes_of_stand_ins(lending) > kMostRehearsed) {
    reason = "only a run of it shows that";
    return nullptr;
  }
  StandIns call(op, stack, lending, contents);
  const bool answers = asks(
      [&] {
        const InferenceScope scope;
        call_kernel(op, lending.engine_keys(), &call.arguments);
      },
      reason);
  if (!answers) return nullptr;
  return observe(call.arguments, op.num_returns, call.loans, nullptr, ShownBy::kKernel);
}

// Whether the engine's kernel takes such arguments, whatever the operands hold. Probabilities cannot be
// zeros.
bool is_taken(Op& op, const torch::jit::Stack& stack, const Lending& lending, std::string& reason) {
  using Contents = StandIns::Contents;
  std::string of_ones;
  return !lending.runs_kernels() || bytes_of_stand_ins(lending) > kMostChecked ||
         rehearse(op, stack, lending, Contents::kZeros, reason) != nullptr ||
         rehearse(op, stack, lending, Contents::kOnes, of_ones) != nullptr;
}

// What decides whether a kernel has code for a call: the op, and the dtypes of its operands.
size_t kind_of(const Op& op, const Lending& lending) {
  size_t kind = op.record.id;
  for (const Loan& loan : lending.loans()) {
    kind = c10::hash_combine(kind, static_cast<size_t>(loan.alias.scalar_type()));
  }
  return kind;
}

constexpr size_t kMostTried = size_t{1} << 23;  // bytes

bool mixes_floats(const Lending& lending) {
  std::optional<c10::ScalarType> first;
  return std::any_of(lending.loans().begin(), lending.loans().end(), [&](const Loan& loan) {
    const c10::ScalarType type = loan.alias.scalar_type();
    if (!c10::isFloatingType(type)) return false;
    if (!first.has_value()) first = type;
    return type != *first;
  });
}

// What a first run on zeros has shown of a kind of call.
enum class Kind : uint8_t { kUnknown, kAsSaid, kOfOtherDtypes };

class Kinds {
 public:
  Kind find(size_t kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(kind);
    return found == known_.end() ? Kind::kUnknown : found->second;
  }
  void learn(size_t kind, Kind shown) {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_.emplace(kind, shown);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, Kind> known_;
};

Kinds& kinds() {
  static auto* const instance = new Kinds;
  return *instance;
}

// Whether the engine's kernel refuses these dtypes, which shape functions do not know. A kernel that is
// queued would say so too late. Calls of up to 8 MiB (256 where operands have several floating-point dtypes)
// are tried on zeros until a kernel has taken the dtypes; random ops, which would draw numbers, are not.
// Where the kernel's results have other dtypes than the shape function says (the gradient of a loss whose
// operands have two), they become the `outputs`.
bool lacks_kernel(Op& op, const torch::jit::Stack& stack, const Lending& lending,
                  std::shared_ptr<const InferredOutputs>& outputs, std::string& reason) {
  if (!lending.runs_kernels() || op.has_generator || op.handle.hasTag(at::Tag::nondeterministic_seeded) ||
      !outputs->resized.empty()) {
    return false;
  }
  const size_t kind = kind_of(op, lending);
  const Kind known = kinds().find(kind);
  if (known == Kind::kAsSaid) return false;
  size_t bytes = bytes_of_stand_ins(lending);
  for (const size_t each : outputs->storage_bytes) bytes += each;
  if (known == Kind::kUnknown && bytes > (mixes_floats(lending) ? kMostRehearsed : kMostTried)) return false;
  std::string said;
  const auto shown = rehearse(op, stack, lending, StandIns::Contents::kZeros, said);
  if (shown == nullptr &&
      (said.find("not implemented for") != std::string::npos || said.find("support") != std::string::npos ||
       said.find("type") != std::string::npos)) {
    reason = said;
    // Whether the dtypes are why, and not the values.
    return rehearse(op, stack, lending, StandIns::Contents::kOnes, said) == nullptr;
  }
  if (shown == nullptr) {
    reason = said;
    return known == Kind::kOfOtherDtypes;  // too large to be tried, and the shape function is wrong
  }
  const bool is_as_said = compare(*outputs, *shown).first != "dtypes";
  // Without elements many kernels are not even looked for.
  const auto& loans = lending.loans();
  const auto is_empty = [](const Loan& loan) { return loan.alias.numel() == 0; };
  if (std::none_of(loans.begin(), loans.end(), is_empty)) {
    kinds().learn(kind, is_as_said ? Kind::kAsSaid : Kind::kOfOtherDtypes);
  }
  if (!is_as_said) outputs = shown;
  return false;
}

// Whether an operand that is written shares memory with itself or, in part, with another: kernels refuse
// that, or warn of it, in the program's thread.
bool writes_shared_memory(const Lending& lending) {
  struct Range {
    const char *begin, *end;
    const Loan* loan;
  };
  c10::SmallVector<Range, 8> ranges;
  for (const Loan& loan : lending.loans()) {
    const at::Tensor& alias = loan.alias;
    if (alias.layout() != c10::kStrided || !alias.has_storage() || alias.numel() == 0) continue;
    if (!alias.unsafeGetTensorImpl()->is_non_overlapping_and_dense()) {
      if (loan.is_written && at::has_internal_overlap(alias) == at::MemOverlap::Yes) return true;
      continue;  // what such a one shares with others is too hard to say
    }
    const auto* const memory = static_cast<const char*>(alias.storage().data());
    if (memory == nullptr) continue;
    const char* const begin = memory + alias.storage_offset() * alias.dtype().itemsize();
    ranges.push_back({begin, begin + alias.nbytes(), &loan});
  }
  // From the lowest address, so that each meets only those that it overlaps: lists have thousands of
  // operands, which may all lie in one storage.
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& first = ranges[i];
    for (size_t j = i + 1; j < ranges.size() && ranges[j].begin < first.end; ++j) {
      const Loan& second = *ranges[j].loan;
      if ((first.loan->is_written || second.is_written) &&
          at::get_overlap_status(first.loan->alias, second.alias) == at::MemOverlapStatus::Partial) {
        return true;
      }
    }
  }
  return false;
}

// An unwanted gradient: kernels leave it out, and some shape functions do not.
void drop_unwanted(const Op& op, const torch::jit::Stack& stack, torch::jit::Stack& results) {
  const std::vector<c10::Argument>& schema = op.handle.schema().arguments();
  for (size_t i = 0; i < op.num_arguments; ++i) {
    if (schema[i].name() != "output_mask") continue;
    const c10::IValue& mask = stack[stack.size() - op.num_arguments + i];
    if (!mask.isBoolList() || mask.toListRef().size() != op.num_returns) return;
    for (size_t j = 0; j < op.num_returns; ++j) {
      c10::IValue& result = results[results.size() - op.num_returns + j];
      if (result.isTensor() && !mask.toListRef()[j].toBool()) result = at::Tensor();
    }
  }
}

// x.fill_(1j) of a real x: an error, whatever the kernel; shape functions let it pass.
bool writes_complex_number(const Op& op, const torch::jit::Stack& stack) {
  const size_t first = stack.size() - op.num_arguments;
  if (!op.writes || !op.arguments.front().is_written || !stack[first].isTensor()) return false;
  return !stack[first].toTensor().is_complex() &&
         std::any_of(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end(),
                     [](const c10::IValue& value) { return value.isComplexDouble(); });
}

// Whether the kernel of a product may refuse operands that its shape function takes, which returned
// `results`.
bool may_be_refused(const Op& op, const torch::jit::Stack& stack, const torch::jit::Stack& results) {
  if (!op.facts.has(op_flag::kOneDtype)) return false;
  const auto arguments = torch::jit::last(stack, op.num_arguments);
  const auto& formal = op.handle.schema().arguments();
  const auto is_named = [&](std::string_view name) {
    return std::any_of(formal.begin(), formal.end(), [&](const auto& each) { return each.name() == name; });
  };
  const bool has_addend = is_named("beta");
  // Where the call names the dtype of the result, the addend may have that.
  const bool compares_addend = !is_named("out_dtype");
  std::optional<c10::ScalarType> type;
  bool is_complex_number = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    is_complex_number |= arguments[i].isComplexDouble();
    if (!arguments[i].isTensor() || formal[i].is_out()) continue;
    if (i == 0 && has_addend && !compares_addend) continue;
    const c10::ScalarType own = arguments[i].toTensor().scalar_type();
    if (own != type.value_or(own)) return true;
    type = own;
  }
  if (is_complex_number && type.has_value() && !c10::isComplexType(*type)) return true;
  return has_addend && arguments[0].isTensor() && results.back().isTensor() &&
         !at::is_expandable_to(arguments[0].toTensor().sizes(), results.back().toTensor().sizes());
}

// Whether the host must know how many elements a mask chooses: only a number fits any count of them.
bool counts_mask(const Op& op, const torch::jit::Stack& stack) {
  if (op.is_index) return has_mask(op, stack);
  if (!op.is_index_put) return false;
  const c10::IValue& values = stack[stack.size() - op.num_arguments + 2];
  return values.isTensor() && values.toTensor().dim() > 0 && has_mask(op, stack);
}

// `has_raised`: the shape function has, or the kernel in its place.
std::shared_ptr<const InferredOutputs> infer(Op& op, const torch::jit::Stack& stack, const Lending& lending,
                                             std::string& reason, bool& has_raised) {
  const auto on_zeros = [&] {
    auto shown = rehearse(op, stack, lending, StandIns::Contents::kZeros, reason);
    if (shown != nullptr) num_engine.fetch_add(1, std::memory_order_relaxed);
    return shown;
  };
  if (op.facts.has(op_flag::kEngineInfers)) {
    auto shown = on_zeros();
    has_raised = shown == nullptr;
    return shown;
  }
  const bool in_cpp = static_cast<bool>(op.shape_function());
  if (!op.has_shapes()) {
    reason = "it has no shape function";
    return nullptr;
  }
  StandIns call(op, stack, lending, StandIns::Contents::kNone);
  const bool answers = asks(
      [&] {
        const InferenceScope scope;
        if (in_cpp) {
          op.shape_function()(call.arguments);
        } else {
          op.handle.redispatchBoxed(DispatchKeySet(DispatchKey::Meta), &call.arguments);
        }
      },
      reason);
  has_raised = !answers;
  if (has_raised) return nullptr;
  if (op.facts.has(op_flag::kEngineChecks) && !is_taken(op, stack, lending, reason)) return nullptr;
  has_raised = may_be_refused(op, stack, call.arguments);
  if (has_raised) {
    reason = "its kernel may refuse such operands";
    return nullptr;
  }
  drop_unwanted(op, stack, call.arguments);
  auto outputs = observe(call.arguments, op.num_returns, call.loans, nullptr, ShownBy::kShapeFunction);
  if (lacks_kernel(op, stack, lending, outputs, reason)) return nullptr;
  // Python ones make an `out` contiguous, where kernels give it the strides of their operands.
  if (!in_cpp && !outputs->resized.empty() && lending.runs_kernels()) {
    auto shown = on_zeros();
    // Zeros may have another rank than the values will have.
    return shown != nullptr && has_sizes_of(*shown, *outputs) ? shown : nullptr;
  }
  (in_cpp ? num_cpp : num_python).fetch_add(1, std::memory_order_relaxed);
  return outputs;
}

// What the kernel returns for zeros, or its error; null where values may be the cause of that, and where it
// cannot be tried.
std::shared_ptr<const InferredOutputs> rehearse_or_raise(Op& op, const torch::jit::Stack& stack,
                                                         const Lending& lending) {
  if (!lending.runs_kernels() || op.has_generator || op.handle.hasTag(at::Tag::nondeterministic_seeded) ||
      bytes_of_stand_ins(lending) > kMostRehearsed) {
    return nullptr;
  }
  StandIns call(op, stack, lending, StandIns::Contents::kZeros);
  try {
    const InferenceScope scope;
    call_kernel(op, lending.engine_keys(), &call.arguments);
  } catch (const c10::Error&) {
    std::string said;
    if (rehearse(op, stack, lending, StandIns::Contents::kOnes, said) != nullptr) return nullptr;
    throw;
  }
  return observe(call.arguments, op.num_returns, call.loans, nullptr, ShownBy::kKernel);
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
  if (!op.can_queue || lending.is_by_keys()) return {};
  if (op.looks_at_values(stack) || counts_mask(op, stack) || writes_complex_number(op, stack)) return {};
  if (op.writes && writes_shared_memory(lending)) return {};
  // An LSTM keeps a workspace only where gradients are wanted.
  return lending.key_of_outputs(c10::GradMode::is_enabled());
}

bool must_teach(Op& op) {
  return !op.has_shapes() || op.facts.has(op_flag::kEngineInfers) || op.was_not_inferred ||
         is_checked.load(std::memory_order_relaxed);
}

InferenceKey key_to_teach(Op& op, const torch::jit::Stack& stack, const Lending& lending) {
  if (!lending.runs_kernels()) return {};
  InferenceKey key = key_of(op, stack, lending);
  if (is_checked.load(std::memory_order_relaxed) && key.has_value()) [[unlikely]] {
    expected = Expected{};
    bool has_raised = false;
    expected.outputs = infer(op, stack, lending, expected.reason, has_raised);
  }
  return key;
}

void teach(const Op& op, const CallKey& key, const torch::jit::Stack& stack, const Lending& lending) {
  auto shown =
      observe(stack, op.num_returns, lending.loans(), &lending.output_allocations(), ShownBy::kKernel);
  if (is_checked.load(std::memory_order_relaxed)) [[unlikely]] {
    note_check(op, expected, *shown);
  }
  learn_outputs(key, std::move(shown));
}

std::shared_ptr<const InferredOutputs> find_or_infer(Op& op, const torch::jit::Stack& stack,
                                                     const Lending& lending, const CallKey& key,
                                                     bool is_captured, std::string& reason) {
  if (auto known = find_inferred(key)) {
    num_known.fetch_add(1, std::memory_order_relaxed);
    return known;
  }
  bool has_raised = false;
  auto inferred = infer(op, stack, lending, reason, has_raised);
  if (is_captured && has_raised) {
    inferred = rehearse_or_raise(op, stack, lending);
    if (inferred != nullptr) num_engine.fetch_add(1, std::memory_order_relaxed);
  }
  if (inferred == nullptr) {
    op.was_not_inferred = true;
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
          num_python.load(std::memory_order_relaxed), num_engine.load(std::memory_order_relaxed),
          num_unknown.load(std::memory_order_relaxed)};
}

}  // namespace loom::glue
