#include "torch/ops/shape_functions.h"

#include <algorithm>
#include <iterator>

#include "torch/ops/generated/shape_function_headers.inc"

namespace loom::glue {

namespace {

using Any = void (*)();

// One wrapper for each signature, not for each op.
template <typename Function>
c10::KernelFunction wrap(Any function) {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(reinterpret_cast<Function>(function));
}

struct Row {
  std::string_view op;
  Any function;
  c10::KernelFunction (*wrap)(Any);
};

}  // namespace

c10::KernelFunction cpp_shape_function(std::string_view full_name) {
#define LOOM_SHAPE_FUNCTION(op, name, ...) \
  {op, reinterpret_cast<Any>(static_cast<__VA_ARGS__>(&at::meta::name)), &wrap<__VA_ARGS__>},
  static const Row rows[] = {
#include "torch/ops/generated/shape_functions.inc"
  };
#undef LOOM_SHAPE_FUNCTION
  const auto* const found = std::lower_bound(std::begin(rows), std::end(rows), full_name,
                                             [](const Row& row, std::string_view op) { return row.op < op; });
  return found != std::end(rows) && found->op == full_name ? found->wrap(found->function)
                                                           : c10::KernelFunction();
}

}  // namespace loom::glue
