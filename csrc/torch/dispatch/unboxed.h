// Borrowing without the stack: one template makes a kernel with an op's own signature. For the ops that
// matter most.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "torch/cuda/fast_route.h"
#include "torch/dispatch/boxed.h"
#include "torch/dispatch/device_assert.h"
#include "torch/dispatch/plan.h"
#include "torch/loans/device_mismatch.h"
#include "torch/loans/lend.h"

namespace loom::glue {

// Of a number of any dtype the type alone decides, and nothing of one with a fraction: ops for which that is
// wrong are not called in this way (tests/ops/test_table.py).
template <typename T>
void mix_in(Lending& lending, const T& argument) {
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    lending.mix(static_cast<uint64_t>(argument));
  } else if constexpr (std::is_same_v<T, c10::SymInt>) {
    lending.mix(static_cast<uint64_t>(argument.as_int_unchecked()));
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    lending.mix(static_cast<uint64_t>(argument.type()));
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    lending.mix(std::hash<std::string_view>()(argument));
  } else if constexpr (std::is_same_v<T, at::IntArrayRef> || std::is_same_v<T, c10::SymIntArrayRef> ||
                       std::is_same_v<T, at::ArrayRef<at::Scalar>> ||
                       requires { std::tuple_size<T>::value; }) {  // std::array
    lending.mix(argument.size());
    for (const auto& value : argument) mix_in(lending, value);
  } else if constexpr (requires { argument.has_value(); }) {
    lending.mix(argument.has_value() ? 1 : 0);
    if (argument.has_value()) mix_in(lending, *argument);
  }
}

// Lends one argument of an op's C++ signature. What is not a tensor passes through.
template <typename T>
struct Lent {
  static T of(Lending& lending, T argument) {
    mix_in(lending, argument);
    return argument;
  }
};
struct LentTensor {
  c10::MaybeOwned<at::Tensor> tensor;
  operator const at::Tensor&() const { return *tensor; }
};
template <>
struct Lent<const at::Tensor&> {
  static LentTensor of(Lending& lending, const at::Tensor& tensor) { return {lending.lend_borrowed(tensor)}; }
};
template <>
struct Lent<at::Tensor&> {
  static at::Tensor of(Lending& lending, at::Tensor& tensor) {
    return *lending.lend_borrowed(tensor, /*is_written=*/true);
  }
};
template <>
struct Lent<const std::optional<at::Tensor>&> {
  static std::optional<at::Tensor> of(Lending& lending, const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) return *lending.lend_borrowed(*tensor);
    lending.mix(0);
    return std::nullopt;
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
    lending.mix(tensors.size());
    const bool is_written = lending.take_writes_list();
    for (const at::Tensor& tensor : tensors) lent.tensors.push_back(lending.lend_element(tensor, is_written));
    return lent;
  }
};
template <>
struct Lent<const at::ITensorListRef&> {
  static LentList of(Lending& lending, const at::ITensorListRef& tensors) {
    LentList lent;
    lent.tensors.reserve(tensors.size());
    lending.mix(tensors.size());
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
      [&](auto&&... each) {
        return std::tuple<T...>(adopt_all(lending, std::forward<decltype(each)>(each))...);
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

// A lent argument as the boxed kernel has it.
template <typename T>
c10::IValue boxed_argument(const T& argument) {
  return argument;
}
inline c10::IValue boxed_argument(const LentTensor& lent) { return *lent.tensor; }
inline c10::IValue boxed_argument(const at::ITensorListRef& tensors) {
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : tensors) list.push_back(tensor);
  return list;
}
inline c10::IValue boxed_argument(const LentList& list) { return c10::List<at::Tensor>(list.tensors); }

// Rare, and not to be compiled into every op: those with the same signature share it.
template <typename Lent>
[[gnu::noinline]] torch::jit::Stack boxed_arguments(const Lent& lent) {
  return std::apply(
      [](const auto&... arguments) {
        torch::jit::Stack stack;
        stack.reserve(sizeof...(arguments) + 2);
        (stack.push_back(boxed_argument(arguments)), ...);
        return stack;
      },
      lent);
}

// Adds what the tape reports besides operands.
template <typename... T>
[[gnu::noinline]] void describe_arguments(Lending& lending, const std::vector<const char*>& names,
                                          const T&... arguments) {
  const char* const* name = names.data();
  (lending.description().add_attribute(*name++, arguments), ...);
}

// A kernel that runs `At` (at::_ops::…) on the engine.
template <typename At, typename Signature = typename At::schema>
struct Borrowed;

template <typename At, typename Return, typename... Arguments>
struct Borrowed<At, Return(Arguments...)> {
  static constexpr bool kWritesLists = std::is_void_v<Return>;  // _foreach_add_
  static constexpr bool kWrites = kWritesLists || std::is_same_v<Return, at::Tensor&>;

  static Return call(Arguments... arguments) {
    if constexpr ((std::is_same_v<Arguments, at::TensorList> || ...)) {
      DeviceSpan span;
      (add_list(span, arguments), ...);
      const auto takes_fast_route = [&] {
        FastRoute route(At::name);
        (route.add(arguments), ...);
        return route.is_taken();
      };
      if (span.is_mixed() || !has_foreach() || (FastRoute::is_asked() && !takes_fast_route())) {
        return At::redispatch(one_by_one_keys(), std::forward<Arguments>(arguments)...);
      }
    }
    if constexpr (kIsTracedInParts) {
      if (is_tracing_parts()) return At::redispatch(one_by_one_keys(), std::forward<Arguments>(arguments)...);
    }
    try {
      return lend_and_run(std::forward<Arguments>(arguments)...);
    } catch (const DeviceMismatch&) {
      mismatched(arguments...);
    }
  }

 private:
  static Return lend_and_run(Arguments... arguments) {
    Op& op = record();
    Lending lending(op);
    if constexpr (kWritesLists) lending.set_writes_list();
    // Braces: arguments are lent from left to right.
    std::tuple<decltype(Lent<Arguments>::of(lending, std::declval<Arguments>()))...> lent{
        Lent<Arguments>::of(lending, arguments)...};
    const bool runs_in_place = lending.runs_in_place();
    if (plan_of(op, lending).is_boxed || !runs_in_place) [[unlikely]] {
      torch::jit::Stack stack = boxed_arguments(lent);
      run_lent(op, &stack, lending, runs_in_place);
      return returned(stack, std::forward<Arguments>(arguments)...);
    }
    if (lending.must_describe()) [[unlikely]] {
      static const auto names = argument_names(At::name, At::overload_name);
      describe_arguments(lending, names, arguments...);
    }
    lending.expect_outputs();
    const auto run = [&](auto&&... engine_arguments) -> decltype(auto) {
      return At::redispatch(lending.engine_keys(), engine_arguments...);
    };
    if constexpr (kWrites) {
      try {
        lending.run([&] { std::apply(run, lent); });
      } catch (const std::exception& error) {
        return asserted(op, lent, lending, error, std::forward<Arguments>(arguments)...);
      }
      lending.write_back();
      if constexpr (kWritesLists) {
        lending.finish();
      } else {
        at::Tensor& written = written_argument<Arguments...>(std::forward<Arguments>(arguments)...);
        lending.finish(written);
        return written;
      }
    } else {
      std::optional<Return> result;
      try {
        lending.run([&] { result.emplace(std::apply(run, lent)); });
      } catch (const std::exception& error) {
        return asserted(op, lent, lending, error, std::forward<Arguments>(arguments)...);
      }
      Return adopted = adopt_all(lending, std::move(*result));
      lending.finish(adopted);
      return adopted;
    }
  }

  // torch.jit's tracer records no op without results, and no convolution.
  static constexpr bool kIsTracedInParts =
      std::is_void_v<Return> || std::string_view(At::name) == "aten::convolution";

  static Op& record() {
    static Op& own = Op::named(At::name, At::overload_name);
    return own;
  }

  // In the handler of the error that the operands are not on one device.
  [[noreturn, gnu::noinline]] static void mismatched(const Arguments&... arguments) {
    raise_mismatch(record(), torch::jit::Stack{boxed_argument(arguments)...});
  }

  // In the handler of an error of the engine's kernel: what the op returns where the device asserts.
  template <typename Lent>
  [[gnu::noinline]] static Return asserted(Op& op, const Lent& lent, Lending& lending,
                                           const std::exception& error, Arguments... arguments) {
    torch::jit::Stack stack = boxed_arguments(lent);
    if (lending.output_allocations().refused_bytes() != 0) {
      queue_bounded(op, &stack, lending);
      return returned(stack, std::forward<Arguments>(arguments)...);
    }
    const auto* const own = dynamic_cast<const c10::Error*>(&error);
    if (!are_errors_examined || own == nullptr) throw;
    assert_or_rethrow(op, &stack, lending, *own);
    return returned(stack, std::forward<Arguments>(arguments)...);
  }

  static Return returned(torch::jit::Stack& stack, Arguments... arguments) {
    if constexpr (kWritesLists) {
      return;
    } else if constexpr (kWrites) {
      return written_argument<Arguments...>(std::forward<Arguments>(arguments)...);
    } else {
      return c10::impl::PopResult<Return>::call(stack);
    }
  }
};

}  // namespace loom::glue
