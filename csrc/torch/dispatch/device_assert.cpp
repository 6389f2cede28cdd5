#include "torch/dispatch/device_assert.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <unordered_map>

#include "runtime/commands.h"
#include "runtime/tape.h"
#include "torch/core/errors.h"
#include "torch/core/python_line.h"
#include "torch/dispatch/device_error.h"
#include "torch/dispatch/implicit_sync.h"
#include "torch/engine/generator.h"
#include "torch/inference/infer.h"
#include "torch/loans/replace_tensors.h"
#include "torch/loans/silence.h"
#include "torch/memory/allocator.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

bool has_device_asserts = false;
bool are_errors_examined = false;

namespace {

using runtime::Command;
using runtime::CommandKind;
using runtime::kinds_of;

constexpr int32_t kAssertTriggered = 710;  // CUDA's numbers
constexpr int32_t kIllegalAddress = 700;

int32_t number_of(Fault fault) { return fault == Fault::kAssert ? kAssertTriggered : kIllegalAddress; }
const char* words_of(Fault fault) {
  return fault == Fault::kAssert ? "device-side assert triggered"
                                 : "an illegal memory access was encountered";
}

// What failed first. Leaked: threads may raise it until the process ends.
struct Failed {
  std::mutex mutex;
  int32_t error = 0;
  std::string title, what;
};
Failed& failed() {
  static auto* instance = new Failed;
  return *instance;
}

// Raises the error where the host waits or asks, and from then on wherever it asks the device for something.
class Guard final : public runtime::TapeReader {
 public:
  Guard() : TapeReader(kWaits | kWork) {}
  void begin(const Command& command) override {
    if (is_raised_.load(std::memory_order_relaxed) || has(kWaits, command.kind)) raise();
  }
  [[noreturn]] void raise();

 private:
  static constexpr runtime::CommandKinds kWaits =
      kinds_of({CommandKind::kSynchronizeStream, CommandKind::kSynchronizeEvent,
                CommandKind::kSynchronizeDevice, CommandKind::kQueryStream, CommandKind::kQueryEvent});
  static constexpr runtime::CommandKinds kWork =
      kinds_of({CommandKind::kKernel, CommandKind::kCopy, CommandKind::kFill, CommandKind::kRecordEvent,
                CommandKind::kWaitEvent, CommandKind::kAllocate, CommandKind::kReplay});
  static bool has(runtime::CommandKinds kinds, CommandKind kind) {
    return (kinds >> static_cast<int>(kind) & 1) != 0;
  }

  std::atomic<bool> is_raised_{false};
};

const std::shared_ptr<Guard>& guard() {
  static auto* instance = new std::shared_ptr<Guard>(std::make_shared<Guard>());
  return *instance;
}

void Guard::raise() {
  is_raised_.store(true, std::memory_order_relaxed);
  int32_t error;
  std::string title, what;
  {
    const std::lock_guard<std::mutex> lock(failed().mutex);
    error = failed().error;
    title = failed().title;
    what = failed().what;
  }
  const std::string device = device_name_upper();
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error,
      device + " error: " + title + "\n" + what + "\nThe devices cannot be used any more in this process. " +
          device +
          " kernel errors might be asynchronously reported at some other API call, so the stacktrace above "
          "may be misleading.\nFor debugging consider passing " +
          (device == "CUDA" ? "CUDA_LAUNCH_BLOCKING=1" : "TORCH_LOOM_LAUNCH=blocking") +
          ", or TORCH_LOOM_ASSERTS=immediate: then the op raises an error of its own and the devices go on.");
}

// The arguments with tensors of one value. Those that share memory still do: a kernel may refuse that.
class Filled {
 public:
  Filled(const torch::jit::Stack& arguments, int value) : value_(value) {
    for (const c10::IValue& argument : arguments) this->arguments.push_back(of(argument));
  }
  torch::jit::Stack arguments;

 private:
  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta()) return tensor;
    at::Tensor& known = known_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    known = view_of_filled(tensor);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      known.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return known;
  }
  c10::IValue of(const c10::IValue& value) {
    if (value.isGenerator()) return new_engine_generator();
    return with_tensors_replaced(value, [this](const at::Tensor& tensor) { return of(tensor); });
  }

  at::Tensor view_of_filled(const at::Tensor& tensor) {
    if (!tensor.has_storage() || tensor.layout() != c10::kStrided || tensor.storage().nbytes() == 0) {
      return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).fill_(value_);
    }
    at::Tensor& whole = memory_[tensor.storage().data()];
    const auto num_items = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
    if (!whole.defined() || whole.dtype() != tensor.dtype() || whole.numel() < num_items) {
      whole = at::empty({num_items}, tensor.options()).fill_(value_);
    }
    return whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }

  const int value_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;
  std::unordered_map<const void*, at::Tensor> memory_;
};

bool runs_on(const Op& op, c10::DispatchKeySet engine_keys, const torch::jit::Stack& arguments, int value) {
  try {
    const EngineScope scope;
    const OutputAllocations::Suspended on_host;
    const Silence silence;
    Filled call(arguments, value);
    call_kernel(op, engine_keys, &call.arguments);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

size_t bytes_of(const torch::jit::Stack& arguments) {
  size_t bytes = 0;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    bytes += tensor.has_storage() ? tensor.storage().nbytes() : tensor.nbytes();
  }
  return bytes;
}

bool has_elements(const torch::jit::Stack& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    return argument.isList() ||
           (argument.isTensor() && argument.toTensor().defined() && argument.toTensor().numel() > 0);
  });
}

// A GPU's host code raises these itself, after it has waited, or without elements, on which no kernel runs.
bool is_raised_by_host(const Op& op, const torch::jit::Stack& arguments, const c10::Error& error) {
  // Indices need no count; masks among them do.
  const bool is_counted = op.is_data_dependent && (!op.is_index || has_mask(op, arguments));
  return is_counted || op.facts.has(op_flag::kHostChecks) || !has_elements(arguments) ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const c10::LinAlgError*>(&error) != nullptr ||
         dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
         dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
}

// Puts results with undefined contents in the place of the arguments.
void push_undefined(const Op& op, torch::jit::Stack* stack, Lending& lending,
                    const InferredOutputs& inferred) {
  for (const InferredOutputs::Resized& resized : inferred.resized) {
    lending.resize_loan(resized.loan, resized.layout.sizes, resized.layout.strides);
  }
  const PreparedOutputs outputs(inferred, lending.loans(), lending.device());
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(op.num_arguments), stack->end());
  outputs.push(*stack);
}

}  // namespace

void set_device_asserts(bool is_on) {
  has_device_asserts = is_on;
  are_errors_examined = is_on || device_type() == c10::DeviceType::CUDA;
}

bool is_caused_by_values(const Op& op, c10::DispatchKeySet engine_keys, const torch::jit::Stack& arguments,
                         const c10::Error& error) {
  if (is_raised_by_host(op, arguments, error)) return false;
  // Copies of such operands might not fit: then its shape function alone must answer.
  constexpr size_t kMostBytes = size_t{1} << 28;
  return bytes_of(arguments) > kMostBytes ||
         (runs_on(op, engine_keys, arguments, 0) || runs_on(op, engine_keys, arguments, 1));
}

void rethrow_as_assert(const c10::Error& error, const std::string& line) {
  const std::string what = error.what_without_backtrace() + (line.empty() ? "" : "\n  " + line);
  if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) raise_asserted_index(what);
  if (typeid(error) != typeid(c10::Error)) throw;  // a type of its own, as ValueError
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kAssertTriggered, what);
}

void assert_or_rethrow(Op& op, torch::jit::Stack* stack, Lending& lending, const c10::Error& error) {
  const InferenceKey key = lending.runs_kernels() ? key_of(op, *stack, lending) : InferenceKey();
  if (!key.has_value()) throw;
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.num_arguments);
  const torch::jit::Stack arguments(first, stack->end());
  if (!is_caused_by_values(op, lending.engine_keys(), arguments, error)) throw;
  std::string reason;
  const auto inferred = find_or_infer(op, *stack, lending, *key, /*is_captured=*/false, reason);
  if (inferred == nullptr || !inferred->can_queue) throw;
  if (!has_device_asserts) rethrow_as_assert(error);
  note_device_assert(op.name(), error.what_without_backtrace(), python_line());
  if (lending.chosen().runtime().config().launch == "blocking") raise_device_assert();
  push_undefined(op, stack, lending, *inferred);
}

void skip_or_raise(Op& op, torch::jit::Stack* stack, Lending& lending) {
  const runtime::StreamRef stream = runtime::current_stream_of(lending.device());
  const InferenceKey key = key_of(op, *stack, lending);
  if (!key.has_value() || translated([&] { return runtime::is_captured(stream); })) raise_device_assert();
  std::string reason;
  const auto inferred = find_or_infer(op, *stack, lending, *key, /*is_captured=*/false, reason);
  if (inferred == nullptr || !inferred->can_queue) raise_device_assert();
  push_undefined(op, stack, lending, *inferred);
}

void raise_fault(const std::string& what, Fault fault) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, number_of(fault),
                              std::string(device_name_upper()) + " error: " + words_of(fault) + "\n" + what);
}

namespace {

void note(int32_t error, const char* title, const std::string& what, const char* shown) {
  {
    const std::lock_guard<std::mutex> lock(failed().mutex);
    if (!failed().what.empty()) return;
    failed().error = error;
    failed().title = title;
    failed().what = what;
    std::fprintf(stderr, "%s: %s: %s\n", device_name().c_str(), shown, what.c_str());
  }
  runtime::tape::attach(guard());
  set_memory_check(&raise_device_assert);
  has_asserted.store(true);
  watch_syncs_for_asserts();
}

std::string text_of(const std::string& op_name, const std::string& reason, std::string_view line) {
  return op_name + (line.empty() ? "" : " (" + std::string(line) + ")") + ": " + reason;
}

}  // namespace

void note_device_assert(const char* op_name, const std::string& reason, std::string_view line, Fault fault) {
  note(number_of(fault), words_of(fault), text_of(op_name, reason, line),
       fault == Fault::kAssert ? "device-side assert" : "illegal memory access");
}

void note_device_error(int32_t error, const char* title, const std::string& kernel, const std::string& reason,
                       std::string_view line) {
  const std::string what = text_of(kernel, reason, line);
  if (!has_device_asserts) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error,
                                device_name_upper() + " error: " + title + "\n" + what);
  }
  note(error, title, what, title);
}

void raise_device_assert() { guard()->raise(); }

}  // namespace loom::glue
