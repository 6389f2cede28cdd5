// Borrowing without the stack: one template makes a kernel with an op's own signature. For the ops that
// matter most.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <tuple>
#include <vector>

#include "torch/dispatch/boxed.h"
#include "torch/dispatch/lend.h"

namespace loom::glue {

// Lends one argument of an op's C++ signature. What is not a tensor passes through; whole numbers tell apart
// what a kernel allocates.
template <typename T>
struct Lent {
  static T of(Lending& lending, T argument) {
    if constexpr (std::is_integral_v<T>) {
      lending.mix(static_cast<uint64_t>(argument));
    } else if constexpr (std::is_same_v<T, at::IntArrayRef>) {
      for (const int64_t value : argument) lending.mix(static_cast<uint64_t>(value));
    }
    return argument;
  }
};
template <>
struct Lent<const at::Tensor&> {
  static at::Tensor of(Lending& lending, const at::Tensor& tensor) { return lending.lend(tensor); }
};
template <>
struct Lent<at::Tensor&> {
  static at::Tensor of(Lending& lending, at::Tensor& tensor) {
    return lending.lend(tensor, /*is_written=*/true);
  }
};
template <>
struct Lent<const std::optional<at::Tensor>&> {
  static std::optional<at::Tensor> of(Lending& lending, const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() ? std::optional(lending.lend(*tensor)) : std::nullopt;
  }
};
// A list that owns its aliases for as long as the kernel refers to them.
struct LentList {
  std::vector<at::Tensor> tensors;
  operator at::TensorList() const { return tensors; }
  operator at::ITensorListRef() const { return at::ITensorListRef(tensors); }
};
template <>
struct Lent<at::TensorList> {
  static LentList of(Lending& lending, at::TensorList tensors) {
    LentList lent;
    lent.tensors.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      lent.tensors.push_back(lending.lend_element(tensor, lending.writes_lists()));
    }
    return lent;
  }
};
template <>
struct Lent<const at::ITensorListRef&> {
  static LentList of(Lending& lending, const at::ITensorListRef& tensors) {
    LentList lent;
    lent.tensors.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) lent.tensors.push_back(lending.lend_element(tensor, false));
    return lent;
  }
};

inline at::Tensor adopt_all(Lending& lending, at::Tensor&& result) {
  return lending.adopt(std::move(result));
}
template <typename... T>
std::tuple<T...> adopt_all(Lending& lending, std::tuple<T...>&& results) {
  return std::apply(
      [&](auto&&... one) {
        return std::tuple<T...>(adopt_all(lending, std::forward<decltype(one)>(one))...);
      },
      std::move(results));
}
inline std::vector<at::Tensor> adopt_all(Lending& lending, std::vector<at::Tensor>&& results) {
  for (at::Tensor& result : results) result = lending.adopt(std::move(result));
  return std::move(results);
}
inline int64_t adopt_all(Lending&, int64_t&& value) { return value; }
inline c10::SymInt adopt_all(Lending&, c10::SymInt&& value) { return value; }

// The first argument that the op writes: what an in-place or out= op returns.
template <typename First, typename... Rest>
at::Tensor& written_argument(First&& first, Rest&&... rest) {
  if constexpr (std::is_same_v<First, at::Tensor&>) {
    return first;
  } else {
    return written_argument(std::forward<Rest>(rest)...);
  }
}

template <typename T>
void add_list(DeviceSpan& span, const T& argument) {
  if constexpr (std::is_same_v<T, at::TensorList>) {
    for (const at::Tensor& tensor : argument) span.add(tensor);
  }
}

// A kernel that runs `Op` on the engine. `kHostScalars`: whether its operands may be CPU scalars.
template <typename Op, bool kHostScalars, typename Signature = typename Op::schema>
struct Borrowed;

template <typename Op, bool kHostScalars, typename Return, typename... Arguments>
struct Borrowed<Op, kHostScalars, Return(Arguments...)> {
  static Return call(Arguments... arguments) {
    if constexpr ((std::is_same_v<Arguments, at::TensorList> || ...)) {
      DeviceSpan span;
      (add_list(span, arguments), ...);
      if (span.is_mixed()) return Op::redispatch(one_by_one_keys(), std::forward<Arguments>(arguments)...);
    }
    thread_local OutputAllocationTable table;
    std::optional<Lending> lending(std::in_place, Op::name, OperandPolicy{kHostScalars, false, false});
    // What returns nothing works in place, on lists (_foreach_add_).
    if constexpr (std::is_void_v<Return>) lending->set_writes_lists();
    // Braces: arguments are lent from left to right. Not forwarded: call_boxed() may need them afterwards.
    std::tuple<decltype(Lent<Arguments>::of(*lending, std::declval<Arguments>()))...> lent{
        Lent<Arguments>::of(*lending, arguments)...};
    if (!lending->runs_in_place()) [[unlikely]] {
      lending.reset();
      return call_boxed(std::forward<Arguments>(arguments)...);
    }
    if (fallback::is_watched(lending->dtypes())) [[unlikely]] {
      static const fallback::Op& op = fallback::op_of(Op::name, Op::overload_name);
      fallback::check(op, lending->dtypes(), lending->device());
    }
    const auto run = [&](auto&&... engine_arguments) -> decltype(auto) {
      return Op::redispatch(engine_keys(), engine_arguments...);
    };
    if constexpr (std::is_void_v<Return>) {
      lending->run(table, [&] { std::apply(run, lent); });
      lending->write_back();
    } else if constexpr (std::is_same_v<Return, at::Tensor&>) {
      lending->run(table, [&] { std::apply(run, lent); });
      lending->write_back();
      return written_argument<Arguments...>(std::forward<Arguments>(arguments)...);
    } else {
      std::optional<Return> result;
      lending->run(table, [&] { result.emplace(std::apply(run, lent)); });
      return adopt_all(*lending, std::move(*result));
    }
  }

 private:
  // Work for a worker or a graph outlives this call: the boxed kernel keeps its arguments.
  static Return call_boxed(Arguments... arguments) {
    static const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return c10::impl::BoxedKernelWrapper<Return(Arguments...)>::call(
        c10::BoxedKernel::makeFromFunction<&run_boxed>(), handle, engine_keys(),
        std::forward<Arguments>(arguments)...);
  }
};

}  // namespace loom::glue
