#include "torch/dispatch/no_values.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torch/core/python_line.h"

namespace loom::glue {

namespace {

using torch::jit::Stack;
using Arguments = c10::ArrayRef<c10::IValue>;

// Whether this is the first time that this line of Python is told.
bool is_first(std::set<std::string_view>& told, std::string_view line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  return told.insert(line).second;
}

std::string_view name_of_line(std::string_view line) {
  return line.empty() ? std::string_view("a call") : line;
}

void warn_of_size(const Op& op) {
  static auto* const told = new std::set<std::string_view>;
  const std::string_view line = python_line();
  if (!is_first(*told, line)) return;
  TORCH_WARN(
      name_of_line(line), ": ", op.name(),
      " has as many results as values decide, on a device that computes nothing. It has the most there "
      "that it can have (every element counts; repeat_interleave: each once), and memory and time are "
      "those of that.");
}

at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) { return at::empty(sizes, like.options()); }
at::Tensor positions(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kLong));
}

std::vector<int64_t> sizes_of_nonzero(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {self.numel(), self.dim()};
}

std::vector<int64_t> sizes_of_selected(Arguments arguments) {
  const auto sizes = at::infer_size(arguments[0].toTensor().sizes(), arguments[1].toTensor().sizes());
  return {c10::multiply_integers(sizes)};
}

Stack nonzero(Arguments arguments) {
  return {positions(sizes_of_nonzero(arguments), arguments[0].toTensor())};
}

Stack masked_select(Arguments arguments) {
  return {empty(sizes_of_selected(arguments), arguments[0].toTensor())};
}

template <std::vector<int64_t> (*sizes_of)(Arguments)>
Stack resized(Arguments arguments) {
  const at::Tensor& out = arguments.back().toTensor();
  out.resize_(sizes_of(arguments));
  return {out};
}

// Values, the place of each element among them, and how often each is there.
Stack unique(const at::Tensor& self, std::optional<int64_t> dim, bool has_places, bool has_counts) {
  const int64_t place = dim.has_value() ? at::maybe_wrap_dim(*dim, self.dim()) : 0;
  const int64_t count = dim.has_value() ? self.size(place) : self.numel();
  const at::Tensor values = dim.has_value() ? at::empty(self.sizes(), self.options()) : empty({count}, self);
  std::vector<int64_t> places{0};
  if (has_places) places = dim.has_value() ? std::vector<int64_t>{count} : self.sizes().vec();
  return {values, positions(places, self), positions({has_counts ? count : 0}, self)};
}

Stack unique_pair(Arguments arguments) {
  Stack found = unique(arguments[0].toTensor(), std::nullopt, arguments[2].toBool(), false);
  found.pop_back();
  return found;
}
Stack unique_all(Arguments arguments) {
  return unique(arguments[0].toTensor(), std::nullopt, arguments[2].toBool(), arguments[3].toBool());
}
Stack unique_dim(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[1].toInt(), arguments[3].toBool(), arguments[4].toBool());
}
Stack unique_consecutive(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[3].toOptional<int64_t>(), arguments[1].toBool(),
                arguments[2].toBool());
}
Stack unique_dim_consecutive(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[1].toInt(), arguments[2].toBool(), arguments[3].toBool());
}

Stack repeat_interleave(Arguments arguments) {
  const at::Tensor& repeats = arguments[0].toTensor();
  const int64_t given = arguments[1].toOptional<int64_t>().value_or(repeats.numel());
  return {empty({given}, repeats)};
}

// The largest value is read as 0: one bin.
Stack bincount(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t bins = std::max<int64_t>(arguments[2].toInt(), self.numel() == 0 ? 0 : 1);
  if (!arguments[1].isTensor()) return {positions({bins}, self)};
  const auto dtype = arguments[1].toTensor().scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return {at::empty({bins}, self.options().dtype(dtype))};
}

using Answer = Stack (*)(Arguments);

Answer answer_of(std::string_view name) {
  static const auto* const answers = new std::unordered_map<std::string_view, Answer>{
      {"aten::nonzero", &nonzero},
      {"aten::nonzero.out", &resized<&sizes_of_nonzero>},
      {"aten::masked_select", &masked_select},
      {"aten::masked_select.out", &resized<&sizes_of_selected>},
      {"aten::_unique", &unique_pair},
      {"aten::_unique2", &unique_all},
      {"aten::unique_dim", &unique_dim},
      {"aten::unique_consecutive", &unique_consecutive},
      {"aten::unique_dim_consecutive", &unique_dim_consecutive},
      {"aten::repeat_interleave.Tensor", &repeat_interleave},
      {"aten::bincount", &bincount},
  };
  const auto found = answers->find(name);
  return found == answers->end() ? nullptr : found->second;
}

bool is_mask(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const auto dtype = value.toTensor().scalar_type();
  return dtype == at::kBool || dtype == at::kByte;
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
    for (int64_t dim = 0; dim < mask.dim(); ++dim) expanded.push_back(positions({mask.numel()}, mask));
  }
  indices = std::move(expanded);
  return true;
}

}  // namespace

void warn_of_constant() {
  static auto* const told = new std::set<std::string_view>;
  const std::string_view line = python_line();
  if (!is_first(*told, line)) return;
  TORCH_WARN(name_of_line(line),
             ": reads a value of a device that computes nothing. Values read there are 0 (False), and what "
             "depends on them goes on with that.");
}

bool run_without_values(const Op& op, Stack* stack) {
  const size_t first = stack->size() - op.num_arguments;
  if (op.is_index) {
    if (expand_masks((*stack)[first + 1])) warn_of_size(op);
    return false;
  }
  if (op.is_index_put) {
    const auto indices = (*stack)[first + 1].toListRef();
    if (std::none_of(indices.begin(), indices.end(), is_mask)) return false;
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
  const Answer answer = op.is_data_dependent ? answer_of(op.name()) : nullptr;
  if (answer == nullptr) return false;
  warn_of_size(op);
  Stack results = answer(Arguments(*stack).slice(first));
  stack->resize(first);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

}  // namespace loom::glue
