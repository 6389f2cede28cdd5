#include "torch/ops/op.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "runtime/simulated_clock.h"
#include "torch/cuda/values/values.h"
#include "torch/engine/engine.h"

namespace loom::glue {

namespace {

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

// What replaces the engine's kernel.
OwnKernel kernel_of(std::string_view name) {
  const OwnKernel cudas = cuda_kernel_of(name);
  return cudas != nullptr ? cudas : own_kernel_of(name);
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

bool is_aten(const c10::OperatorHandle& op) { return op.operator_name().getNamespace() == "aten"; }

// Ops that give the engine a kernel which it lacks (kernels/fused_op.h).
bool is_fused(const c10::OperatorHandle& op) { return op.operator_name().getNamespace() == "loom_fused"; }

// Ops of data formats (torch/numerics), whose kernels are the engine's.
bool is_numerics(const c10::OperatorHandle& op) {
  return op.operator_name().getNamespace() == "loom_numerics";
}

// What an op is called on the tape and in messages: fused ops bear the names of PyTorch's.
std::string shown_name_of(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return is_fused(op) ? "aten" + name.substr(name.find(':')) : name;
}

std::string full_name_of(const c10::OperatorHandle& op) {
  const std::string& overload = op.operator_name().overload_name;
  return shown_name_of(op) + (overload.empty() ? "" : "." + overload);
}

// Ops by the address of their schema, which lives as long as the op is registered.
class Table {
 public:
  Op* find(const void* schema) const {
    for (size_t i = first(schema);; i = (i + 1) % kSlots) {
      const Slot& slot = slots_[i];
      const void* key = slot.key.load(std::memory_order_acquire);
      if (key == schema) return slot.op.load(std::memory_order_acquire);
      if (key == nullptr) return nullptr;
    }
  }

  // Replaces the op that had the address before. Under the table's mutex.
  void put(const void* schema, Op* op) {
    for (size_t i = first(schema);; i = (i + 1) % kSlots) {
      Slot& slot = slots_[i];
      const void* key = slot.key.load(std::memory_order_relaxed);
      if (key != nullptr && key != schema) continue;
      TORCH_CHECK(key != nullptr || ++num_used_ < kSlots / 4 * 3, "more than ", num_used_,
                  " ops have been used on ", device_name(), " devices");
      slot.op.store(op, std::memory_order_release);
      slot.key.store(schema, std::memory_order_release);
      return;
    }
  }

  std::mutex mutex;

 private:
  // PyTorch has some 4000 ops, others bring theirs.
  static constexpr size_t kSlots = size_t{1} << 16;
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Op*> op{nullptr};
  };
  static size_t first(const void* schema) {
    return (reinterpret_cast<uintptr_t>(schema) * 0x9E3779B97F4A7C15ull) >> 48;
  }

  std::array<Slot, kSlots> slots_;
  size_t num_used_ = 0;
};

// Leaked, as the ops are: threads may call them until the process ends.
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

}  // namespace

Op::Op(const c10::OperatorHandle& own_handle)
    : handle(own_handle),
      facts(facts_of(full_name_of(own_handle))),
      record(runtime::intern_op(shown_name_of(own_handle), own_handle.operator_name().overload_name,
                                facts.shape_class)),
      policy{facts.has(op_flag::kHostScalars), facts.has(op_flag::kHostTensors),
             facts.has(op_flag::kHostLists)},
      alert(alert_of(record.full_name)),
      refusal(refusal_of(record.full_name)),
      widened_dtypes(widened_dtypes_of(record.full_name)),
      widened_sparse_dtypes(widened_sparse_dtypes_of(record.full_name)),
      own_kernel(kernel_of(record.name)),
      random(cuda_random::random_op_of(record.full_name)),
      asked_dtypes(refused_dtypes_of(refusal) | widened_dtypes),
      is_refused_by_row(refuses_rows(refusal)),
      key_(&own_handle.schema()),
      shape_function_(is_fused(own_handle) ? ShapeFunction() : cpp_shape_function(record.full_name)),
      is_permanent_(is_aten(own_handle) || is_fused(own_handle) || is_numerics(own_handle)) {
  read_schema();
}

void Op::read_schema() {
  const c10::FunctionSchema& schema = handle.schema();
  num_arguments = schema.arguments().size();
  num_returns = schema.returns().size();
  const std::string& base = schema.name();
  is_foreach = base.rfind("aten::_foreach_", 0) == 0;
  takes_zeros = own_kernel != nullptr && base.rfind("aten::remainder", 0) == 0;
  is_index_put = facts.has(op_flag::kMaskCounted) && base.find("index_put") != std::string::npos;
  is_index = facts.has(op_flag::kMaskCounted) && !is_index_put;
  // repeat_interleave; its last argument is the size of its result.
  is_repeat = base == "aten::repeat_interleave";
  const bool is_sized = handle.hasTag(at::Tag::dynamic_output_shape);
  is_data_dependent = is_sized || handle.hasTag(at::Tag::data_dependent_output);
  has_sizes_of_values =
      is_data_dependent || base.rfind("aten::_to_sparse", 0) == 0 || base == "aten::linalg_lstsq";
  lacks_shapes = base.find("fake_quantize_per_") != std::string::npos || base == "aten::_logcumsumexp";
  makes_object = std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return result.real_type()->kind() == c10::TypeKind::ClassType;
  });
  is_traced_in_parts = (schema.returns().empty() || !returns_tensors(schema)) &&
                       handle.hasComputedKernelForDispatchKey(c10::DispatchKey::HPU);
  // Kernels of other namespaces may be Python, which a worker must not wait for.
  can_queue = is_permanent_ && returns_tensors(schema) && (is_index || !is_sized) &&
              !handle.hasTag(at::Tag::data_dependent_output);
  for (size_t i = 0; i < num_arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const c10::Type& type = *argument.real_type();
    if (argument.name() == "unsafe" || argument.name() == "check_errors") {
      asked_to_look_ = AskedToLook{i, argument.name() == "check_errors"};
    }
    if (argument.name() == "min" && is_number(type)) range_.min = i;
    if (argument.name() == "max" && is_number(type)) range_.max = i;
    // That the engine's kernel takes one number does not say that it takes another.
    const bool by_type =
        is_number(type) && !facts.has(op_flag::kSizedByNumbers) && !facts.has(op_flag::kEngineChecks);
    key_parts.push_back(by_type ? KeyPart::kTypeOnly : KeyPart::kExact);
    const ArgKind kind = kind_of(type);
    if (kind == ArgKind::kOther) continue;
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    arguments.push_back({i, kind, is_written});
    has_generator |= kind == ArgKind::kGenerator;
    writes |= is_written;
  }
}

bool Op::is_asked_to_look(const torch::jit::Stack& stack) const {
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - num_arguments);
  if (range_.min != range_.max) {
    // Without a range it is that of the elements.
    const auto bound = [&](size_t place) { return arguments[place].toScalar().toDouble(); };
    return bound(range_.min) == bound(range_.max) && arguments[0].toTensor().numel() != 0;
  }
  return !asked_to_look_.has_value() || arguments[asked_to_look_->place].toBool() == asked_to_look_->if_true;
}

bool Op::fits(const c10::OperatorHandle& other) const {
  return is_permanent_ || (handle.operator_name() == other.operator_name() &&
                           num_arguments == other.schema().arguments().size());
}

Op& Op::of(const c10::OperatorHandle& handle) {
  const void* key = &handle.schema();
  // An op that was taken away may have left its address to another.
  if (Op* known = table().find(key); known != nullptr && known->fits(handle)) [[likely]] {
    return *known;
  }
  const std::lock_guard<std::mutex> lock(table().mutex);
  if (Op* known = table().find(key); known != nullptr && known->fits(handle)) return *known;
  auto* fresh = new Op(handle);
  table().put(key, fresh);
  return *fresh;
}

Op& Op::named(const char* name, const char* overload) {
  return of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

bool Op::costs_by_value() {
  int8_t answer = costs_by_value_.load(std::memory_order_relaxed);
  if (answer < 0) {
    const std::vector<c10::Argument>& schema = handle.schema().arguments();
    answer =
        facts.has(op_flag::kSizedByNumbers) ||
        std::any_of(schema.begin(), schema.end(), [](const c10::Argument& argument) {
          return is_number(*argument.type()) && runtime::simulated::decides_cost(argument.name().c_str());
        });
    costs_by_value_.store(answer, std::memory_order_relaxed);
  }
  return answer != 0;
}

bool Op::is_served() {
  if (is_served_.load(std::memory_order_relaxed)) [[likely]] {
    return true;
  }
  const auto has_kernel = [&](c10::DispatchKey key) { return handle.hasComputedKernelForDispatchKey(key); };
  // Kernels of other libraries for the CPU are not the device's: they must be registered for it, as on a
  // card. Those of PyTorch's own libraries are.
  const std::string_view space = handle.operator_name().getNamespace().value_or("");
  const bool is_own = is_permanent_ || space == "prims" || space == "quantized" || space == "_quantized" ||
                      space == "torchvision" || space == "torchaudio";
  const bool is_found =
      is_own && !facts.has(op_flag::kNotBorrowed) &&
      (has_kernel(kEngineOps) || has_kernel(kEngineSparseOps) || has_kernel(kEngineSparseCsrOps) ||
       has_kernel(kEngineNestedOps) || has_kernel(kEngineQuantizedOps));
  if (is_found) is_served_.store(true, std::memory_order_relaxed);
  return is_found;
}

bool Op::has_shapes() {
  if (has_shapes_.load(std::memory_order_relaxed)) [[likely]] {
    return true;
  }
  // Not hasComputedKernelForDispatchKey(): PyTorch's fallback for Meta, which raises, counts for it.
  const auto has_kernel = [&](c10::DispatchKey key) { return handle.hasKernelForDispatchKey(key); };
  using enum c10::DispatchKey;
  const bool is_found = static_cast<bool>(shape_function_) || has_kernel(Meta) ||
                        has_kernel(CompositeExplicitAutograd) || has_kernel(CompositeImplicitAutograd) ||
                        has_kernel(CompositeExplicitAutogradNonFunctional);
  if (is_found) has_shapes_.store(true, std::memory_order_relaxed);
  return is_found;
}

const fallback::Op& Op::fallback_entry() {
  const fallback::Op* entry = fallback_.load(std::memory_order_acquire);
  if (entry == nullptr) {
    entry = &fallback::op_of(shown_name_of(handle), handle.operator_name().overload_name);
    fallback_.store(entry, std::memory_order_release);
  }
  return *entry;
}

}  // namespace loom::glue
