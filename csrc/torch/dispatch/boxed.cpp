#include "torch/dispatch/boxed.h"

#include <ATen/core/List.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <unordered_map>

#include "runtime/capture.h"
#include "torch/core/generator.h"
#include "torch/dispatch/graph.h"
#include "torch/dispatch/implicit_sync.h"
#include "torch/dispatch/lend.h"
#include "torch/dispatch/queued_op.h"
#include "torch/memory/lazy.h"
#include "torch/memory/lazy_fill.h"
#include "torch/ops/op_tables.h"

namespace loom::glue {

namespace {

enum class ArgKind : uint8_t { kOther, kTensor, kTensorList, kOptionalTensorList, kDevice, kGenerator };

struct Argument {
  size_t index;
  ArgKind kind;
  bool is_written;
};

// What the kernel needs to know of an op's schema, worked out at its first call.
struct OpPlan {
  std::string schema_name, name;  // without and with the overload
  OperandPolicy policy;
  std::vector<Argument> arguments;  // those that are not kOther
  size_t num_arguments = 0, num_returns = 0;
  bool is_foreach = false, makes_contents = false;
  bool has_generator = false, writes = false, is_served = false;
  // Its results are tensors whose metadata the arguments decide. `index`: only without masks.
  bool can_queue = false, is_index = false;
  // The host learns a size or a value from it; `is_index_put`: only with masks, or indices of the host's.
  bool is_data_dependent = false, is_index_put = false;
  std::vector<KeyPart> key_parts;  // of every argument
  OutputAllocationTable output_allocations;
  const fallback::Op* fallback = nullptr;  // once it was needed
};

ArgKind kind_of(const c10::Type& type) {
  if (type.isSubtypeOf(*c10::TensorType::get())) return ArgKind::kTensor;
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return kind_of(*optional->getElementType());
  if (const auto* list = type.castRaw<c10::ListType>()) {
    const auto& element = *list->getElementType();
    if (element.isSubtypeOf(*c10::TensorType::get())) return ArgKind::kTensorList;
    if (element.kind() == c10::TypeKind::OptionalType && kind_of(element) == ArgKind::kTensor) {
      return ArgKind::kOptionalTensorList;
    }
    return ArgKind::kOther;
  }
  if (type.kind() == c10::TypeKind::DeviceObjType) return ArgKind::kDevice;
  if (type.kind() == c10::TypeKind::GeneratorType) return ArgKind::kGenerator;
  return ArgKind::kOther;
}

bool is_number(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return is_number(*optional->getElementType());
  if (const auto* list = type.castRaw<c10::ListType>()) return is_number(*list->getElementType());
  return type.kind() == c10::TypeKind::NumberType || type.kind() == c10::TypeKind::FloatType;
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    const ArgKind kind = kind_of(*result.real_type());
    return kind == ArgKind::kTensor || kind == ArgKind::kTensorList;
  });
}

// Ops whose numbers decide how many elements they return.
bool is_sized_by_numbers(const std::string& name) {
  return name.rfind("aten::arange", 0) == 0 || name.rfind("aten::range", 0) == 0;
}

std::unique_ptr<OpPlan> make_plan(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto plan = std::make_unique<OpPlan>();
  plan->schema_name = schema.name();
  plan->name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  plan->num_arguments = schema.arguments().size();
  plan->num_returns = schema.returns().size();
  plan->is_foreach = plan->name.rfind("aten::_foreach_", 0) == 0;
  plan->makes_contents = makes_contents(plan->name);
  plan->policy.host_scalars = accepts_host_scalars(plan->name);
  plan->policy.host_lists = accepts_host_indices(plan->name);
  plan->policy.host_tensors = accepts_host_tensors(plan->name);
  const auto has_kernel = [&](c10::DispatchKey key) { return op.hasComputedKernelForDispatchKey(key); };
  plan->is_served = is_borrowable(plan->name) &&
                    (has_kernel(engine_keys().highestPriorityTypeId()) ||
                     has_kernel(c10::DispatchKey::SparseCPU) || has_kernel(c10::DispatchKey::SparseCsrCPU));
  plan->is_index = plan->schema_name == "aten::index";
  plan->is_index_put = plan->schema_name == "aten::index_put_" || plan->schema_name == "aten::index_put" ||
                       plan->schema_name == "aten::_index_put_impl_";
  plan->is_data_dependent =
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  // Kernels of other namespaces may be Python, which a worker must not wait for.
  const bool is_native = plan->name.rfind("aten::", 0) == 0 || plan->name.rfind("loom_numerics::", 0) == 0;
  plan->can_queue = is_native && returns_tensors(schema) &&
                    (plan->is_index || !op.hasTag(at::Tag::dynamic_output_shape)) &&
                    !op.hasTag(at::Tag::data_dependent_output);
  for (const c10::Argument& argument : schema.arguments()) {
    const bool by_type = is_number(*argument.real_type()) && !is_sized_by_numbers(plan->name);
    plan->key_parts.push_back(by_type ? KeyPart::kTypeOnly : KeyPart::kExact);
  }
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const ArgKind kind = kind_of(*argument.real_type());
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (kind == ArgKind::kOther) continue;
    plan->arguments.push_back({i, kind, is_written});
    plan->has_generator |= kind == ArgKind::kGenerator;
    plan->writes |= is_written;
  }
  return plan;
}

OpPlan& plan_of(const c10::OperatorHandle& op) {
  // A schema lives as long as its op; a thread's own table needs no lock.
  thread_local std::unordered_map<const void*, std::unique_ptr<OpPlan>> plans;
  std::unique_ptr<OpPlan>& plan = plans[&op.schema()];
  // An op that was taken away may have left its address to another; kernels may come later than the first
  // call.
  if (plan == nullptr || !plan->is_served || plan->schema_name != op.schema().name() ||
      plan->num_arguments != op.schema().arguments().size()) {
    plan = make_plan(op);
  }
  return *plan;
}

const fallback::Op& fallback_of(const c10::OperatorHandle& op, OpPlan& plan) {
  if (plan.fallback == nullptr) {
    plan.fallback = &fallback::op_of(op.schema().name(), op.schema().overload_name());
  }
  return *plan.fallback;
}

c10::List<at::Tensor> lend_list(Lending& lending, const c10::List<at::Tensor>& tensors, bool is_written) {
  c10::List<at::Tensor> lent;
  lent.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) lent.push_back(lending.lend_element(tensor, is_written));
  return lent;
}

c10::IValue lend_optional_list(Lending& lending, const c10::List<std::optional<at::Tensor>>& tensors) {
  c10::List<std::optional<at::Tensor>> lent;
  lent.reserve(tensors.size());
  for (const std::optional<at::Tensor>& tensor : tensors) {
    lent.push_back(tensor.has_value() ? std::optional(lending.lend_element(*tensor, false)) : std::nullopt);
  }
  return lent;
}

void lend_argument(Lending& lending, c10::IValue& value, const Argument& argument) {
  switch (argument.kind) {
    case ArgKind::kTensor:
      if (value.isTensor()) value = lending.lend(value.toTensor(), argument.is_written);
      break;
    case ArgKind::kTensorList:
      if (value.isTensorList()) value = lend_list(lending, value.toTensorList(), argument.is_written);
      break;
    case ArgKind::kOptionalTensorList:
      if (value.isOptionalTensorList()) value = lend_optional_list(lending, value.toOptionalTensorList());
      if (value.isTensorList()) value = lend_list(lending, value.toTensorList(), argument.is_written);
      break;
    case ArgKind::kDevice:
      if (value.isDevice() && value.toDevice().type() == kLoom) {
        lending.set_device(resolve_device(value.toDevice()).index());
        value = c10::Device(engine_type());
      }
      break;
    case ArgKind::kGenerator:
    case ArgKind::kOther:
      break;
  }
}

void adopt_result(Lending& lending, c10::IValue& value) {
  if (value.isTensor()) {
    // Moved, not copied: a result that nobody else holds becomes the device's in place.
    value = lending.adopt(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> adopted;
    for (at::Tensor& tensor : value.toTensorVector()) adopted.push_back(lending.adopt(std::move(tensor)));
    value = std::move(adopted);
  }
}

bool spans_devices(const OpPlan& plan, const torch::jit::Stack& stack) {
  DeviceSpan span;
  for (const Argument& argument : plan.arguments) {
    const c10::IValue& value = stack[stack.size() - plan.num_arguments + argument.index];
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) span.add(tensor);
  }
  return span.is_mixed();
}

bool has_mask(const torch::jit::Stack& stack, size_t first, size_t num_arguments) {
  for (size_t i = first; i < first + num_arguments; ++i) {
    if (!stack[i].isList()) continue;
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (!element.isTensor() || !element.toTensor().defined()) continue;
      const c10::ScalarType type = element.toTensor().scalar_type();
      if (type == c10::kBool || type == c10::kByte) return true;
    }
  }
  return false;
}

bool has_host_indices(const torch::jit::Stack& stack, size_t first, size_t num_arguments) {
  for (size_t i = first; i < first + num_arguments; ++i) {
    if (!stack[i].isList()) continue;
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (element.isTensor() && element.toTensor().defined() && !is_loom(element.toTensor())) return true;
    }
  }
  return false;
}

// Whether a device would have to tell the host something before the op can go on.
bool waits_for_values(const OpPlan& plan, const torch::jit::Stack& stack) {
  const size_t first = stack.size() - plan.num_arguments;
  // x[mask] = 1.0 needs no count of the mask's elements.
  if (plan.is_index_put && stack[first + 2].isTensor() && stack[first + 2].toTensor().dim() == 0) {
    return has_host_indices(stack, first, plan.num_arguments);
  }
  if (plan.is_index || plan.is_index_put) {
    return has_mask(stack, first, plan.num_arguments) || has_host_indices(stack, first, plan.num_arguments);
  }
  // repeat_interleave that is told the size of its result, its last argument.
  if (plan.schema_name == "aten::repeat_interleave") return stack.back().isNone();
  return plan.is_data_dependent;
}

// The key of a call whose results can be foretold; empty when they cannot.
InferenceKey key_of(const c10::OperatorHandle& op, const OpPlan& plan, const torch::jit::Stack& stack,
                    const Lending& lending) {
  const size_t first = stack.size() - plan.num_arguments;
  if (!plan.can_queue || lending.has_sparse()) return {};
  if (plan.is_index && has_mask(stack, first, plan.num_arguments)) return {};
  InferenceKey key;
  OperandOrder operands(lending.loans());
  key.push_back(reinterpret_cast<int64_t>(&op.schema()));
  // The default dtype is that of int / int; an LSTM keeps a workspace only where gradients are wanted.
  key.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) << 1 |
                int64_t{c10::GradMode::is_enabled()});
  for (size_t i = 0; i < plan.num_arguments; ++i) {
    if (!add_to_key(key, stack[first + i], plan.key_parts[i], operands)) return {};
  }
  return key;
}

// Gives the op a generator of the engine in the place of the program's. Kept by a graph: one that each replay
// fills.
CapturedDraw fill_generator(const OpPlan& plan, torch::jit::Stack* stack, int device, bool is_kept,
                            bool is_captured) {
  if (!plan.has_generator) return {};
  CapturedDraw draw;
  const size_t first = stack->size() - plan.num_arguments;
  for (const Argument& argument : plan.arguments) {
    if (argument.kind != ArgKind::kGenerator) continue;
    c10::IValue& value = (*stack)[first + argument.index];
    const std::optional<at::Generator> given = value.toOptional<at::Generator>();
    const at::Generator& source = generator_of(given, device, plan.name.c_str());
    if (is_captured) {
      draw = captured_draw(source, device, plan.name.c_str());
      value = draw.engine;
    } else {
      value = engine_generator(source, is_kept);
    }
  }
  return draw;
}

[[noreturn]] void refuse_capture(runtime::StreamRef stream, const std::string& reason) {
  runtime::capture::invalidate(stream, reason);
  TORCH_CHECK(false, reason);
}

// Queues the op when what it returns is known; else the key to learn that under, from a run in place.
bool try_queue(const c10::OperatorHandle& op, const OpPlan& plan, torch::jit::Stack* stack, Lending& lending,
               InferenceKey& key) {
  key = key_of(op, plan, *stack, lending);
  std::shared_ptr<const InferredOutputs> inferred = key.empty() ? nullptr : find_inferred(key);
  const runtime::StreamRef stream = runtime::current_stream_of(lending.device());
  const bool is_captured = translated([&] { return runtime::is_captured(stream); });
  std::string reason;
  if (is_captured && inferred == nullptr && !key.empty()) {
    inferred = infer_outputs(op, *stack, plan.num_arguments, plan.num_returns, lending, reason);
  }
  const bool known = inferred != nullptr && inferred->can_queue;
  if (is_captured && !known) {
    const bool is_unseen = inferred == nullptr && !key.empty();
    refuse_capture(stream, plan.name + " cannot be captured by a graph: " +
                               (is_unseen ? "what it returns for such arguments is not known (" + reason +
                                                "); if it is right, run it once before the capture"
                                          : "what it returns depends on values that are only known when it "
                                            "has run"));
  }
  if (!known) return false;
  CapturedDraw draw = fill_generator(plan, stack, lending.device(), /*is_kept=*/true, is_captured);
  queue_op(op, stack, plan.num_arguments, lending, std::move(inferred), std::move(draw));
  return true;
}

}  // namespace

void run_boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  OpPlan& plan = plan_of(op);
  TORCH_CHECK_NOT_IMPLEMENTED(plan.is_served, "The operator '", plan.name, "' is not implemented for ",
                              device_name(), " devices");
  if (plan.is_foreach && spans_devices(plan, *stack)) {
    op.redispatchBoxed(one_by_one_keys(), stack);
    return;
  }
  bool is_checked = false;
  if (plan.makes_contents && is_lazy()) {
    if (fallback::is_watched(fallback::kAnyOp) && !fallback_of(op, plan).is_native) {
      fallback::check(fallback_of(op, plan), fallback::kAnyOp, runtime::current_device());
      is_checked = true;
    }
    if (fill_on_host(op, stack)) return;
  }
  if (is_sync_debugged() && waits_for_values(plan, *stack)) [[unlikely]] {
    report_implicit_sync(plan.name.c_str());
  }
  Lending lending(plan.name.c_str(), plan.policy);
  const size_t first = stack->size() - plan.num_arguments;
  for (const Argument& argument : plan.arguments)
    lend_argument(lending, (*stack)[first + argument.index], argument);
  if (fallback::is_watched(lending.dtypes()) && !is_checked) [[unlikely]] {
    fallback::check(fallback_of(op, plan), lending.dtypes(), lending.device());
  }
  InferenceKey key;
  if (!lending.runs_in_place() && try_queue(op, plan, stack, lending, key)) return;
  fill_generator(plan, stack, lending.device(), /*is_kept=*/false, /*is_captured=*/false);
  const auto work = [&] {
    if (lending.has_sparse()) {
      op.callBoxed(stack);
    } else {
      op.redispatchBoxed(engine_keys(), stack);
    }
  };
  if (key.empty()) {
    lending.run(plan.output_allocations, work);
  } else {
    lending.run_learning(plan.output_allocations, work);
    learn_outputs(key, observe(*stack, plan.num_returns, lending.loans(), lending.output_allocations()));
  }
  if (plan.writes) lending.write_back();
  for (size_t i = stack->size() - plan.num_returns; i < stack->size(); ++i)
    adopt_result(lending, (*stack)[i]);
}

}  // namespace loom::glue
