#include "torch/dispatch/boxed.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <bit>

#include "runtime/capture.h"
#include "torch/core/device_memory.h"
#include "torch/cuda/fast_route.h"
#include "torch/dispatch/device_assert.h"
#include "torch/dispatch/graph.h"
#include "torch/dispatch/implicit_sync.h"
#include "torch/dispatch/plan.h"
#include "torch/dispatch/queued_op.h"
#include "torch/engine/generator.h"
#include "torch/engine/integer_division.h"
#include "torch/inference/infer.h"
#include "torch/inference/kernel_layouts.h"
#include "torch/inference/kernel_words.h"
#include "torch/inference/no_values.h"
#include "torch/loans/device_mismatch.h"
#include "torch/memory/lazy.h"
#include "torch/memory/lazy_fill.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

namespace {

// Lists are taken by what their schema says they hold. The types that lists themselves name are compared by
// address (IValue::isOptionalTensorList), and those of TorchScript's interpreter are objects of their own.
c10::IValue lend_list(Lending& lending, c10::ArrayRef<c10::IValue> tensors, bool is_written) {
  c10::List<at::Tensor> lent;
  lent.reserve(tensors.size());
  lending.mix(tensors.size());
  for (const c10::IValue& tensor : tensors)
    lent.push_back(lending.lend_element(tensor.toTensor(), is_written));
  return lent;
}

c10::IValue lend_optional_list(Lending& lending, c10::ArrayRef<c10::IValue> tensors) {
  c10::List<std::optional<at::Tensor>> lent;
  lent.reserve(tensors.size());
  lending.mix(tensors.size());
  for (const c10::IValue& tensor : tensors) {
    if (tensor.isTensor()) {
      lent.push_back(lending.lend_element(tensor.toTensor(), false));
    } else {
      lending.mix(0);
      lent.push_back(std::nullopt);
    }
  }
  return lent;
}

void lend_argument(Lending& lending, c10::IValue& value, const Argument& argument) {
  if (value.isNone()) return lending.mix(0);
  switch (argument.kind) {
    case ArgKind::kTensor:
      value = lending.lend(value.toTensor(), argument.is_written);
      break;
    case ArgKind::kTensorList:
      value = lend_list(lending, value.toListRef(), argument.is_written);
      break;
    case ArgKind::kOptionalTensorList:
      value = lend_optional_list(lending, value.toListRef());
      break;
    case ArgKind::kDevice:
      if (value.toDevice().type() == device_type()) {
        lending.set_device(resolve_device(value.toDevice()).index());
        value = c10::Device(engine_type(lending.target()));
      }
      break;
    case ArgKind::kGenerator:
    case ArgKind::kOther:
      break;
  }
}

void adopt_result(Lending& lending, c10::IValue& value) {
  if (value.isTensor()) {
    // Moved, not copied: a result with no other owner becomes the device's in place.
    value = lending.adopt(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> adopted;
    for (at::Tensor& tensor : value.toTensorVector()) adopted.push_back(lending.adopt(std::move(tensor)));
    value = std::move(adopted);
  }
}

bool spans_devices(const Op& op, const torch::jit::Stack& stack) {
  DeviceSpan span;
  for (const Argument& argument : op.arguments) {
    const c10::IValue& value = stack[stack.size() - op.num_arguments + argument.index];
    if (argument.kind != ArgKind::kTensorList || !value.isList()) continue;
    for (const c10::IValue& tensor : value.toListRef()) span.add(tensor.toTensor());
  }
  return span.is_mixed();
}

bool takes_fast_route(const Op& op, const torch::jit::Stack& stack) {
  if (!FastRoute::is_asked()) return true;
  FastRoute route(op.handle.schema().name());
  std::vector<std::vector<at::Tensor>> lists;
  lists.reserve(op.num_arguments);  // the route refers to them
  for (size_t i = stack.size() - op.num_arguments; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensorList()) {
      route.add(at::TensorList(lists.emplace_back(value.toTensorVector())));
    } else if (value.isScalar()) {
      route.add(value.toScalar());
    } else if (value.isList()) {
      for (const c10::IValue& number : value.toListRef()) {
        if (number.isScalar()) route.add(number.toScalar());
      }
    }
  }
  return route.is_taken();
}

bool has_host_indices(const Op& op, const torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.num_arguments; i < stack.size(); ++i) {
    if (!stack[i].isList()) continue;
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (element.isTensor() && element.toTensor().defined() && !is_loom(element.toTensor())) return true;
    }
  }
  return false;
}

// Whether the host needs a value from the device before the op can go on.
bool waits_for_values(const Op& op, const torch::jit::Stack& stack) {
  // x[mask] = 1.0 needs no count of the mask's elements.
  const size_t first = stack.size() - op.num_arguments;
  if (op.is_index_put && stack[first + 2].isTensor() && stack[first + 2].toTensor().dim() == 0) {
    return has_host_indices(op, stack);
  }
  if (op.is_index || op.is_index_put) return has_mask(op, stack) || has_host_indices(op, stack);
  if (op.is_repeat) return stack.back().isNone();
  return op.is_data_dependent || op.looks_at_values(stack);
}

// Gives the op a generator of the engine in the place of the program's. If a graph keeps the op, each replay
// fills that generator again.
CapturedDraw fill_generator(const Op& op, torch::jit::Stack* stack, int device, bool is_kept,
                            bool is_captured) {
  if (!op.has_generator) return {};
  CapturedDraw draw;
  const size_t first = stack->size() - op.num_arguments;
  const runtime::RandomGrid* grid = op.random == nullptr ? nullptr : cuda_random::grid_of(device);
  uint64_t step = kOffsetStep;
  if (grid != nullptr) step = op.random->step(*grid, c10::ArrayRef<c10::IValue>(*stack).slice(first));
  if (op.random != nullptr && op.random->kernel == nullptr) grid = nullptr;
  for (const Argument& argument : op.arguments) {
    if (argument.kind != ArgKind::kGenerator) continue;
    c10::IValue& value = (*stack)[first + argument.index];
    const std::optional<at::Generator> given = value.toOptional<at::Generator>();
    const at::Generator& source = generator_of(given, device, op.name());
    if (is_captured) {
      draw = captured_draw(source, device, op.name(), step);
      draw.grid = grid;
      value = draw.engine;
    } else {
      value = engine_generator(source, is_kept, step, grid);
    }
    // Shape functions written in Python take none.
    if (!devices().device(device).runs_kernels()) value = c10::IValue();
  }
  return draw;
}

// Adds what the tape reports besides operands.
void describe(const Op& op, const torch::jit::Stack& stack, Lending& lending) {
  const std::vector<c10::Argument>& schema = op.handle.schema().arguments();
  size_t next = 0;  // of op.arguments
  for (size_t i = 0; i < op.num_arguments; ++i) {
    if (next < op.arguments.size() && op.arguments[next].index == i) {
      ++next;
    } else {
      lending.description().add_value(schema[i].name().c_str(), stack[stack.size() - op.num_arguments + i]);
    }
  }
}

// Arguments that are not tensors decide as well what a kernel allocates and returns. `part`: what of a number
// does.
void mix_argument(Lending& lending, const c10::IValue& value, KeyPart part) {
  enum Kind : uint64_t { kNone, kInt, kBool, kReal, kComplex, kText, kDevice, kList };
  const bool is_exact = part == KeyPart::kExact;
  if (value.isInt()) {
    lending.mix(kInt, is_exact ? static_cast<uint64_t>(value.toInt()) : 0);
  } else if (value.isBool()) {
    lending.mix(kBool, is_exact ? static_cast<uint64_t>(value.toBool()) : 0);
  } else if (value.isDouble()) {
    lending.mix(kReal, is_exact ? std::bit_cast<uint64_t>(value.toDouble()) : 0);
  } else if (value.isNone()) {
    lending.mix(kNone);
  } else if (value.isString()) {
    lending.mix(kText, std::hash<std::string_view>()(value.toStringView()));
  } else if (value.isList()) {
    const auto elements = value.toListRef();
    lending.mix(kList, elements.size());
    for (const c10::IValue& element : elements) mix_argument(lending, element, part);
  } else if (value.isComplexDouble()) {
    lending.mix(kComplex);
  } else if (value.isDevice()) {
    lending.mix(kDevice);
  } else {
    lending.mix_unknown();
  }
}

// Whether some of the lent indices are the host's: CUDA copies them to the device first, and waits.
bool copies_indices(const Op& op, const torch::jit::Stack& stack, const Lending& lending) {
  if (device_type() != c10::DeviceType::CUDA || !(op.is_index || op.is_index_put)) return false;
  const auto indices = stack[stack.size() - op.num_arguments + 1].toListRef();
  return std::any_of(indices.begin(), indices.end(), [&](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined() && !lending.is_alias(index.toTensor());
  });
}

// Queues the op when what it returns can be known before it runs.
bool try_queue(Op& op, torch::jit::Stack* stack, Lending& lending, const InferenceKey& key) {
  std::string reason;
  const runtime::StreamRef stream = runtime::current_stream_of(lending.device());
  const bool is_captured = translated([&] { return runtime::is_captured(stream); });
  if (is_captured && copies_indices(op, *stack, lending)) {
    translated([&] { runtime::capture::forbid_on(stream, "a copy of indices of the host's"); });
  }
  const std::shared_ptr<const InferredOutputs> inferred =
      key.has_value() ? find_or_infer(op, *stack, lending, *key, is_captured, reason) : nullptr;
  const bool known = inferred != nullptr && inferred->can_queue;
  if (is_captured && !known) {
    const bool is_unseen = inferred == nullptr && key.has_value();
    const std::string what =
        op.name() + std::string(" cannot be captured by a graph: ") +
        (is_unseen ? "what it returns for such arguments is not known (" + reason +
                         "); if it is right, run it once before the capture"
                   : "what it returns depends on values that are only known when it has run, or an operand "
                     "that it writes shares memory with itself or another");
    translated([&] { runtime::capture::forbid_on(stream, what); });
  }
  if (!known) return false;
  CapturedDraw draw = fill_generator(op, stack, lending.device(), /*is_kept=*/true, is_captured);
  queue_op(op, stack, lending, inferred, std::move(draw));
  return true;
}

// Calls the engine's kernel. False: the device has asserted, and the results are those of no kernel.
bool call_engine(Op& op, torch::jit::Stack* stack, Lending& lending) {
  const size_t first = stack->size() - op.num_arguments;
  // The kernel takes its arguments off the stack, also where it raises.
  torch::jit::Stack arguments;
  const auto keep_arguments = [&] {
    arguments.assign(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  };
  if (are_errors_examined && lending.runs_kernels()) keep_arguments();
  try {
    lending.run([&] {
      if (op.facts.has(op_flag::kDividesIntegers) && !op.takes_zeros) {
        prepare_integer_division(*stack, op.num_arguments, /*takes_zeros=*/has_device_asserts);
      }
      if (!lending.runs_kernels()) {
        if (run_without_values(op, stack)) return;
        keep_arguments();  // with indices for masks
      }
      if (lending.is_by_keys()) {
        call_kernel_by_keys(op, stack);
      } else {
        call_kernel(op, lending.engine_keys(), stack, lending.device());
      }
      if (!lending.runs_kernels()) {
        refuse_dtypes_as_kernel(op, arguments, c10::ArrayRef<c10::IValue>(*stack).slice(first));
        lay_out_as_kernel(op, arguments, lending.target().chip().is_gpu, stack);
      }
    });
    return true;
  } catch (const std::exception& error) {
    if (!lending.runs_kernels() && !arguments.empty()) rethrow_in_kernel_words(op, arguments);
    const auto* const own = dynamic_cast<const c10::Error*>(&error);
    if (arguments.empty() || own == nullptr || lending.output_allocations().refused_bytes() != 0) throw;
    stack->resize(first);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    assert_or_rethrow(op, stack, lending, *own);
    return false;
  }
}

// `key`: given where the run shows what such calls return.
void run_in_place(Op& op, torch::jit::Stack* stack, Lending& lending, InferenceKey key) {
  if (key.has_value()) lending.forget_outputs();
  const bool is_known = lending.plan().knows_outputs;
  torch::jit::Stack arguments;
  if (!is_known && !op.writes) {
    arguments.assign(stack->end() - static_cast<std::ptrdiff_t>(op.num_arguments), stack->end());
  }
  if (!is_known && !key.has_value() && must_teach(op)) key = key_to_teach(op, *stack, lending);
  const size_t first = stack->size() - op.num_arguments;
  fill_generator(op, stack, lending.device(), /*is_kept=*/false, /*is_captured=*/false);
  lending.expect_outputs();
  const CheckedCall checked = lending.runs_kernels() ? CheckedCall() : checked_call(op, *stack);
  try {
    if (!call_engine(op, stack, lending)) return;
  } catch (const c10::OutOfMemoryError&) {
    if (lending.output_allocations().refused_bytes() == 0) throw;
    stack->resize(first);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    return queue_bounded(op, stack, lending);
  }
  if (key.has_value()) teach(op, *key, *stack, lending);
  if (op.writes) lending.write_back();
  for (size_t i = stack->size() - op.num_returns; i < stack->size(); ++i) adopt_result(lending, (*stack)[i]);
  if (checked.kind != CheckedCall::Kind::kNone) [[unlikely]]
    note_passed(checked, lending.loans().back().original(), stack->back().toTensor());
  if (!lending.is_described()) [[likely]]
    return lending.finish();
  for (size_t i = stack->size() - op.num_returns; i < stack->size(); ++i) {
    lending.description().add_output((*stack)[i]);
  }
  op.num_returns == 0 ? lending.finish() : lending.finish(at::Tensor());
}

}  // namespace

void run_lent(Op& op, torch::jit::Stack* stack, Lending& lending, bool runs_in_place, Noted noted) {
  if (lending.plan().has_rules) {
    const size_t first = stack->size() - op.num_arguments;
    apply_rules(op, c10::ArrayRef<c10::IValue>(*stack).slice(first), lending, noted.is_counted);
  }
  // An op that waits for values has no fixed cost.
  if (lending.must_describe(/*costs_anew=*/noted.waits)) [[unlikely]]
    describe(op, *stack, lending);
  if (runs_in_place) return run_in_place(op, stack, lending, {});
  if (has_asserted.load(std::memory_order_relaxed) && lending.runs_kernels()) [[unlikely]]
    return skip_or_raise(op, stack, lending);
  const InferenceKey key = key_of(op, *stack, lending);
  if (!try_queue(op, stack, lending, key)) run_in_place(op, stack, lending, key);
}

void queue_bounded(Op& op, torch::jit::Stack* stack, Lending& lending) {
  if (try_queue(op, stack, lending, key_of(op, *stack, lending))) return;
  // The words of the device's memory.
  const size_t bytes = lending.output_allocations().refused_bytes();
  free_device_memory(take_device_memory(lending.target(), bytes));
  throw;
}

namespace {

// Packed weights are the host's, for every device: no loan outlives the call.
void pack_on_host(const Op& op, torch::jit::Stack* stack) {
  for (size_t i = stack->size() - op.num_arguments; i < stack->size(); ++i) {
    if ((*stack)[i].isTensor() && (*stack)[i].toTensor().defined())
      (*stack)[i] = (*stack)[i].toTensor().cpu();
  }
  op.handle.callBoxed(stack);
}

void lend_and_run(Op& op, torch::jit::Stack* stack, bool is_by_keys, Noted noted) {
  const size_t first = stack->size() - op.num_arguments;
  Lending lending(op);
  if (is_by_keys) lending.find_by_keys();
  try {
    size_t next = 0;  // of op.arguments
    for (size_t i = 0; i < op.num_arguments; ++i) {
      if (next < op.arguments.size() && op.arguments[next].index == i) {
        lend_argument(lending, (*stack)[first + i], op.arguments[next++]);
      } else {
        mix_argument(lending, (*stack)[first + i], op.key_parts[i]);
      }
    }
  } catch (const DeviceMismatch&) {
    raise_mismatch(op, c10::ArrayRef<c10::IValue>(*stack).slice(first));
  }
  const bool runs_in_place = lending.runs_in_place();
  if (noted.waits && is_sync_watched.load(std::memory_order_relaxed)) [[unlikely]]
    report_implicit_sync(op.name(), lending.device());
  plan_of(op, lending);
  run_lent(op, stack, lending, runs_in_place, noted);
}

void run(const c10::OperatorHandle& handle, torch::jit::Stack* stack, bool is_by_keys) {
  Op& op = Op::of(handle);
  TORCH_CHECK_NOT_IMPLEMENTED(op.is_served(), "The operator '", op.name(), "' is not implemented for ",
                              device_name(), " devices");
  if ((op.is_foreach && (spans_devices(op, *stack) || !has_foreach() || !takes_fast_route(op, *stack))) ||
      (op.is_traced_in_parts && is_tracing_parts())) {
    handle.redispatchBoxed(one_by_one_keys(), stack);
    return;
  }
  if (op.makes_object) return pack_on_host(op, stack);
  Noted noted;
  if (op.facts.has(op_flag::kMakesContents) && devices().has_lazy_devices()) {
    const auto check = [&](int device) {
      if (!fallback::is_watched(kAnyOp)) return;
      noted.is_counted = fallback::check_op(op.fallback_entry(), device);
    };
    if (fill_on_host(handle, stack, check)) return;
  }
  const bool is_asked = is_sync_watched.load(std::memory_order_relaxed) || runtime::simulated::is_on();
  noted.waits = is_asked && waits_for_values(op, *stack);
  lend_and_run(op, stack, is_by_keys, noted);
}

}  // namespace

void run_boxed(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  run(handle, stack, /*is_by_keys=*/false);
}

void run_boxed_by_keys(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  run(handle, stack, /*is_by_keys=*/true);
}

}  // namespace loom::glue
