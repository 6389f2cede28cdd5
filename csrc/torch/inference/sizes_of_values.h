// What ops return whose results' sizes, or which themselves, depend on values, on a device that computes
// none: the most there can be. Arguments are checked as the engine's kernels check them.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

namespace loom::glue {

// Takes operands of the engine `meta`, and returns the results.
using Answer = torch::jit::Stack (*)(c10::ArrayRef<c10::IValue> arguments);

// Null: the op's results do not depend on values, or there is no answer.
Answer answer_of(std::string_view name);

}  // namespace loom::glue
