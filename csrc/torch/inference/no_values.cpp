#include "torch/inference/no_values.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torch/core/python_line.h"
#include "torch/inference/sizes_of_values.h"

namespace loom::glue {

namespace {

using torch::jit::Stack;
using Arguments = c10::ArrayRef<c10::IValue>;

// Whether this is the first warning for this line of Python.
bool is_first(std::set<std::string_view>& told, std::string_view line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  return told.insert(line).second;
}

// Warns as if the line of Python did, "file:number", or a call where there is none: the program's line is
// shown, not PyTorch's or ours.
void warn_at(std::string_view line, std::string text) {
  static auto* const files = new std::set<std::string, std::less<>>;  // a warning may be shown later
  static std::mutex mutex;
  const size_t colon = line.rfind(':');
  if (colon == std::string_view::npos) {
    TORCH_WARN("a call ", text);
    return;
  }
  const char* file = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    file = files->emplace(line.substr(0, colon)).first->c_str();
  }
  const auto number = static_cast<uint32_t>(std::atoi(std::string(line.substr(colon + 1)).c_str()));
  c10::warn(c10::Warning(c10::UserWarning(), {"", file, number}, std::move(text), /*verbatim=*/true));
}

struct ValueReads {
  std::mutex mutex;
  int64_t limit = 0;                                        // of a line; 0: none
  std::vector<std::pair<std::string_view, int64_t>> lines;  // few: a loop reads at the same lines
};

ValueReads& value_reads() {
  static auto* const reads = new ValueReads;
  return *reads;
}

void count_value_read(std::string_view line) {
  ValueReads& reads = value_reads();
  const std::lock_guard<std::mutex> lock(reads.mutex);
  const auto known = std::find_if(reads.lines.begin(), reads.lines.end(),
                                  [&](const auto& each) { return each.first == line; });
  if (known == reads.lines.end()) {
    reads.lines.emplace_back(line, 1);
    return;
  }
  ++known->second;
  TORCH_CHECK(reads.limit == 0 || known->second <= reads.limit, line, " has read ", reads.limit,
              " values of a device that computes nothing, and got 0 each time: a loop may be waiting for "
              "another. Let it end after a number of turns.");
}

void warn_of_size(const Op& op) {
  static auto* const told = new std::set<std::string_view>;
  const std::string_view line = python_line();
  if (!is_first(*told, line)) return;
  warn_at(line,
          std::string(op.name()) +
              " has as many results as values decide, on a device that computes nothing. It has the most "
              "there that it can have (every element counts; repeat_interleave: each once), and memory and "
              "time are those of that.");
}

bool is_mask(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const auto dtype = value.toTensor().scalar_type();
  return dtype == at::kBool || dtype == at::kByte;
}

// As the engine's kernels check them.
void check_indices(const at::Tensor& self, c10::ArrayRef<c10::IValue> indices) {
  int64_t place = 0;  // in the operand
  for (const c10::IValue& index : indices) {
    if (!index.isTensor() || !index.toTensor().defined()) {
      ++place;
      continue;
    }
    const at::Tensor& tensor = index.toTensor();
    const auto dtype = tensor.scalar_type();
    TORCH_CHECK_INDEX(dtype == at::kLong || dtype == at::kInt || is_mask(index),
                      "tensors used as indices must be long, int, byte or bool tensors");
    if (!is_mask(index)) {
      ++place;
      continue;
    }
    for (int64_t dim = 0; dim < tensor.dim(); ++dim, ++place) {
      TORCH_CHECK_INDEX(place < self.dim(), "too many indices for tensor of dimension ", self.dim());
      TORCH_CHECK_INDEX(tensor.size(dim) == self.size(place), "The shape of the mask ", tensor.sizes(),
                        " at index ", dim, " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", place);
    }
  }
  TORCH_CHECK_INDEX(place <= self.dim(), "too many indices for tensor of dimension ", self.dim(), " (got ",
                    place, ")");
}

// Indices with a position for every element of each mask; false: there is no mask.
bool expand_masks(c10::IValue& indices) {
  const auto given = indices.toListRef();
  if (std::none_of(given.begin(), given.end(), is_mask)) return false;
  c10::List<std::optional<at::Tensor>> expanded;
  for (const c10::IValue& index : given) {
    if (!is_mask(index)) {
      expanded.push_back(index.toOptional<at::Tensor>());
      continue;
    }
    const at::Tensor& mask = index.toTensor();
    for (int64_t dim = 0; dim < mask.dim(); ++dim) {
      expanded.push_back(at::empty({mask.numel()}, mask.options().dtype(at::kLong)));
    }
  }
  indices = std::move(expanded);
  return true;
}

// The latest result of a kind, as long as it lives and nothing else is written there.
class LatestResult {
 public:
  void note(const at::Tensor& result, int64_t of_elements) {
    const std::lock_guard<std::mutex> lock(mutex_);
    storage_ = result.storage().getWeakStorageImpl();
    version_ = version_of(result);
    of_elements_ = of_elements;
  }
  // Of how many elements it was computed; nothing if this is not it.
  std::optional<int64_t> find(const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto storage = storage_.lock();
    const bool is_it = storage.get() != nullptr && storage.get() == tensor.storage().unsafeGetStorageImpl() &&
                       version_ == version_of(tensor);
    return is_it ? std::optional(of_elements_) : std::nullopt;
  }

 private:
  static uint32_t version_of(const at::Tensor& tensor) {
    // Under torch.inference_mode() nothing counts versions.
    return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
  }

  std::mutex mutex_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_{c10::intrusive_ptr<c10::StorageImpl>()};
  uint32_t version_ = 0;
  int64_t of_elements_ = 0;
};
LatestResult& latest_check() {
  static auto* const latest = new LatestResult;
  return *latest;
}
LatestResult& latest_count() {
  static auto* const latest = new LatestResult;
  return *latest;
}

LatestResult& latest_not_infinite() {
  static auto* const latest = new LatestResult;
  return *latest;
}

bool is_check(std::string_view name) {
  return name == "aten::all" || name.starts_with("aten::all.") || name == "aten::_is_all_true";
}

}  // namespace

CheckedCall checked_call(const Op& op, const Stack& stack) {
  const std::string_view name = op.name();
  const size_t first = stack.size() - op.num_arguments;
  if (is_check(name)) return {CheckedCall::Kind::kCheck, 0};
  if (name == "aten::sum" && stack[first].toTensor().scalar_type() == at::kBool)
    return {CheckedCall::Kind::kCount, stack[first].toTensor().numel()};
  if (name.starts_with("aten::eq") && stack[first + 1].isInt())
    return {CheckedCall::Kind::kComparison, stack[first + 1].toInt()};
  if (name.starts_with("aten::ne") && stack[first + 1].isDouble() && std::isinf(stack[first + 1].toDouble()))
    return {CheckedCall::Kind::kIsNotInfinite, 0};
  if (name == "aten::mul.Tensor" && stack[first + 1].toTensor().scalar_type() == at::kBool)
    return {CheckedCall::Kind::kBoth, 0};
  return {};
}

void note_passed(const CheckedCall& call, const at::Tensor& operand, const at::Tensor& result) {
  switch (call.kind) {
    case CheckedCall::Kind::kNone:
      return;
    case CheckedCall::Kind::kCheck:
      return latest_check().note(result, 0);
    case CheckedCall::Kind::kCount:
      return latest_count().note(result, call.number);
    case CheckedCall::Kind::kComparison:
      if (latest_count().find(operand) == call.number) latest_check().note(result, 0);
      return;
    case CheckedCall::Kind::kIsNotInfinite:
      return latest_not_infinite().note(result, 0);
    case CheckedCall::Kind::kBoth:
      if (latest_not_infinite().find(operand)) latest_check().note(result, 0);
  }
}

bool holds_true(const at::Tensor& tensor) { return latest_check().find(tensor).has_value(); }

std::vector<std::pair<std::string_view, int64_t>> take_value_reads() {
  ValueReads& reads = value_reads();
  const std::lock_guard<std::mutex> lock(reads.mutex);
  return std::exchange(reads.lines, {});
}

void limit_value_reads(int64_t limit) {
  ValueReads& reads = value_reads();
  const std::lock_guard<std::mutex> lock(reads.mutex);
  reads.limit = limit;
}

void warn_of_constant() {
  static auto* const told = new std::set<std::string_view>;
  const std::string_view line = python_line();
  count_value_read(line);
  if (!is_first(*told, line)) return;
  warn_at(line,
          "reads a value of a device that computes nothing. Values read there are 0 (False), and what "
          "depends on them goes on with that.");
}

bool run_without_values(const Op& op, Stack* stack) {
  const size_t first = stack->size() - op.num_arguments;
  if (op.is_index) {
    check_indices((*stack)[first].toTensor(), (*stack)[first + 1].toListRef());
    if (expand_masks((*stack)[first + 1])) warn_of_size(op);
    return false;
  }
  if (op.is_index_put) {
    const auto indices = (*stack)[first + 1].toListRef();
    check_indices((*stack)[first].toTensor(), indices);
    if (std::none_of(indices.begin(), indices.end(), is_mask)) return false;
    const auto own = (*stack)[first].toTensor().scalar_type(),
               given = (*stack)[first + 2].toTensor().scalar_type();
    TORCH_CHECK(own == given, "Index put requires the source and destination dtypes match, got ", own,
                " for the destination and ", given, " for the source.");
    // As many elements are written as there are: whatever the mask says, the result is like the operand.
    c10::IValue result = (*stack)[first];
    if (!op.writes) result = at::empty_like(result.toTensor());
    if (std::string_view(op.name()).ends_with("out")) {
      const at::Tensor out = stack->back().toTensor();
      out.resize_(result.toTensor().sizes());
      result = out;
    }
    stack->resize(first);
    stack->push_back(std::move(result));
    return true;
  }
  const Answer answer = op.has_sizes_of_values || op.lacks_shapes ? answer_of(op.name()) : nullptr;
  if (answer == nullptr) return false;
  Stack results = answer(Arguments(*stack).slice(first));
  if (results[0].isBool()) {
    warn_of_constant();
  } else if (op.has_sizes_of_values) {
    warn_of_size(op);
  }
  stack->resize(first);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

}  // namespace loom::glue
