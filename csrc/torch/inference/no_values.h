// What a device that computes nothing answers where values decide: a dry run and the driver `null`.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "torch/ops/op.h"

namespace loom::glue {

// Once for each line of Python: what such a device is asked for is 0.
void warn_of_constant();
// The lines of Python that have read such values since the last call, and how often each did, in the order of
// their first reads. Lines live as long as the process.
std::vector<std::pair<std::string_view, int64_t>> take_value_reads();
// From now on a line that reads more often than that raises an error: a loop that waits for a value would
// never end. 0: it may.
void limit_value_reads(int64_t limit);

// A call that may be a check that all elements pass: `all()`, a sum of truth values that equals their number,
// or `isfinite()`, whose parts are `(x == x) * (abs(x) != inf)`. Programs stop, or take the slower way, where
// one does not, and so it is supposed that the latest passes.
struct CheckedCall {
  enum class Kind { kNone, kCheck, kCount, kComparison, kIsNotInfinite, kBoth } kind = Kind::kNone;
  int64_t number = 0;  // elements that are counted, or what is compared with
};
CheckedCall checked_call(const Op& op, const torch::jit::Stack& stack);
// `operand`: the last of the call.
void note_passed(const CheckedCall& call, const at::Tensor& operand, const at::Tensor& result);
bool holds_true(const at::Tensor& tensor);

// Gives results whose sizes depend on values their largest possible sizes, and warns once for each line of
// Python. The stack holds operands of the engine `meta`, and then the results. False: the op is none of
// those, and the stack is as it was, but for masks among indices, which have become positions.
bool run_without_values(const Op& op, torch::jit::Stack* stack);

}  // namespace loom::glue
