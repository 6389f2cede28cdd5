#include "torch/ops/shape_functions.h"

#include <ATen/core/boxing/impl/make_boxed_from_unboxed_functor.h>

#include <tuple>
#include <utility>

#include "torch/generated/shape_function_headers.inc"
#include "util/sorted_rows.h"

namespace loom::glue {

namespace {

using Any = ShapeFunction::Any;
using torch::jit::Stack;

void replace_arguments(Stack& stack, size_t num_arguments, c10::ArrayRef<c10::IValue> results) {
  torch::jit::drop(stack, num_arguments);
  stack.insert(stack.end(), results.begin(), results.end());
}

// Calls a function of this type with the last values of a stack. There is one for each signature, not for
// each op; KernelFunction's own takes twice as long to compile.
template <typename Function>
struct Caller;

template <typename Return, typename... Arguments>
struct Caller<Return (*)(Arguments...)> {
  static void call(Any function, Stack& stack) {
    call(reinterpret_cast<Return (*)(Arguments...)>(function), stack,
         std::index_sequence_for<Arguments...>());
  }

 private:
  template <size_t... kPlaces>
  static void call(Return (*function)(Arguments...), Stack& stack, std::index_sequence<kPlaces...> /*all*/) {
    c10::IValue* const values = stack.data() + (stack.size() - sizeof...(Arguments));
    put(stack,
        function(
            c10::impl::ivalue_to_arg<typename c10::impl::decay_if_not_tensor<Arguments>::type, false>::call(
                values[kPlaces])...));
  }
  // Results may refer to arguments.
  static void put(Stack& stack, const at::Tensor& result) {
    replace_arguments(stack, sizeof...(Arguments), {c10::IValue(result)});
  }
  template <typename... Results>
  static void put(Stack& stack, const std::tuple<Results...>& results) {
    std::apply(
        [&](const Results&... each) {
          replace_arguments(stack, sizeof...(Arguments), {c10::IValue(each)...});
        },
        results);
  }
};

struct Row {
  std::string_view full_name;
  ShapeFunction function;
};

}  // namespace

ShapeFunction cpp_shape_function(std::string_view full_name) {
#define LOOM_SHAPE_FUNCTION(op, name, ...) \
  {op, {reinterpret_cast<Any>(static_cast<__VA_ARGS__>(&at::meta::name)), &Caller<__VA_ARGS__>::call}},
  static const Row rows[] = {
#include "torch/generated/shape_functions.inc"
  };
#undef LOOM_SHAPE_FUNCTION
  const Row* const found = find_row(rows, full_name);
  return found == nullptr ? ShapeFunction() : found->function;
}

}  // namespace loom::glue
