#include "torch/profiler/op_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "torch/core/device.h"
#include "torch/loans/lend.h"
#include "torch/memory/host_allocator.h"
#include "torch/profiler/host_data.h"

namespace loom::glue::op_watch {

namespace {

constexpr const char* kReadNumber = "aten::_local_scalar_dense";

thread_local std::vector<OpInProgress> frames;  // names: its own alone, none of what is not an op

std::mutex mutex;
int num_watchers = 0;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
std::atomic<int64_t> num_departures{0};

bool is_host(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == c10::kStrided &&
         tensor.has_storage();
}

template <typename F>
void each_tensor(c10::ArrayRef<const c10::IValue> values, F&& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isList()) {
      // Not by the type that the list names: TorchScript's are other objects than those it is compared with.
      for (const c10::IValue& element : value.toListRef()) {
        if (!element.isTensor() && !element.isNone()) break;
        if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
      }
    }
  }
}

// Which argument of an op is a dtype; −1: none.
int dtype_argument(const char* name, const char* overload) {
  // On a pointer: there is little room for a library's thread-local variables.
  thread_local const auto known = std::make_unique<std::unordered_map<std::string, int>>();
  const auto [place, is_new] = known->try_emplace(std::string(name) + '.' + overload, -1);
  if (is_new) {
    if (const auto op = c10::Dispatcher::singleton().findSchema({name, overload})) {
      const auto& arguments = op->schema().arguments();
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i].name() == "dtype") place->second = static_cast<int>(i);
      }
    }
  }
  return place->second;
}

bool is_given_dtype(const at::RecordFunction& function) {
  const int index = dtype_argument(function.name(), function.overload_name());
  return index >= 0 && static_cast<size_t>(index) < function.inputs().size() &&
         !function.inputs()[static_cast<size_t>(index)].isNone();
}

void look_at_copy(OpInProgress& op, c10::ArrayRef<const c10::IValue> inputs) {
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return;
  const at::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
  if (!to.defined() || !from.defined()) return;
  op.bytes = static_cast<int64_t>(to.nbytes());
  op.non_blocking = inputs.size() > 2 && inputs[2].isBool() && inputs[2].toBool();
  if (is_loom(to) && is_loom(from)) op.direction = Direction::kWithin;
  if (is_loom(to) && is_host(from)) op.direction = Direction::kToDevice;
  if (is_host(to) && is_loom(from)) op.direction = Direction::kToHost;
  if (op.direction == Direction::kToHost) op.departure = ++num_departures;
  if (op.direction == Direction::kToDevice && op.origin == 0) {
    op.origin = host_data::find_contents(from);
    op.origin_bytes = static_cast<int64_t>(from.nbytes());
  }
  if (op.direction >= Direction::kToHost)
    op.is_pinned = is_pinned((is_host(to) ? to : from).storage().data());
}

bool is_hidden(std::string_view name) { return name.rfind("autograd::", 0) == 0; }

struct Depth final : at::ObserverContext {
  explicit Depth(size_t frames_before) : value(frames_before) {}
  const size_t value;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto depth = std::make_unique<Depth>(frames.size());
  OpInProgress op;
  if (!is_hidden(function.name())) {
    const std::string& name = op.names.emplace_back(function.name());
    const bool is_copy = name == "aten::copy_";
    bool is_written = is_copy || name == "aten::fill_" || name == "aten::zero_";  // the first operand, whole
    each_tensor(function.inputs(), [&](const at::Tensor& tensor) {
      if (is_loom(tensor)) {
        op.operands.emplace_back(tensor.scalar_type(), tensor.dim());
      } else if (!is_written && op.origin == 0 && is_host(tensor)) {
        op.origin = host_data::find(tensor);
        op.origin_bytes = static_cast<int64_t>(tensor.nbytes());
      }
      is_written = false;
    });
    op.source_origin = op.origin;
    if (is_copy) look_at_copy(op, function.inputs());
    if (name == kReadNumber && !op.operands.empty()) op.departure = ++num_departures;
    const bool is_autocast = !c10::impl::tls_is_dispatch_key_excluded(autocast_key());
    op.is_cast_asked = is_given_dtype(function) || is_autocast;
  }
  frames.push_back(std::move(op));
  return depth;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

// What the op left on the host: data of a device, something made of it, or something else in its place.
void follow(const OpInProgress& op, const std::vector<c10::IValue>& outputs) {
  const std::string& name = op.names[0];
  if (op.departure != 0 && name == kReadNumber) {
    if (!outputs.empty() && outputs[0].isScalar() && !outputs[0].isComplexDouble()) {
      host_data::add_number(outputs[0].toScalar().to<double>(), op.departure);
    }
    return;
  }
  const bool overwrites = is_one_of(name, {"aten::copy_", "aten::fill_", "aten::zero_"});
  const int64_t departure = op.departure != 0 ? op.departure : op.source_origin;
  if (departure == 0 && !overwrites) return;
  each_tensor(c10::ArrayRef<const c10::IValue>(outputs.data(), outputs.size()),
              [&](const at::Tensor& tensor) {
                if (!is_host(tensor)) return;
                if (departure != 0) {
                  host_data::add(tensor, departure);
                  if (op.departure != 0 && !op.non_blocking) host_data::add_contents(tensor, departure);
                } else if (tensor.nbytes() == tensor.storage().nbytes()) {
                  host_data::remove(tensor);
                }
              });
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* depth = static_cast<const Depth*>(context);
  if (depth == nullptr || frames.size() <= depth->value) return;
  const OpInProgress op = std::move(frames[depth->value]);
  frames.resize(depth->value);
  if (!op.names.empty()) follow(op, function.outputs());
}

}  // namespace

void start() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (num_watchers++ != 0) return;
  handle = at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

void stop() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--num_watchers != 0) return;
  at::removeCallback(handle);
  host_data::clear();
}

OpInProgress current() {
  OpInProgress op;
  std::vector<std::string> names;
  bool is_cast_asked = false;
  for (const OpInProgress& frame : frames) {
    if (frame.names.empty()) continue;
    if (names.empty()) is_cast_asked = frame.is_cast_asked;
    names.push_back(frame.names[0]);
  }
  for (size_t i = frames.size(); i-- != 0 && op.names.empty();) op = frames[i];
  op.names = std::move(names);
  op.is_cast_asked = is_cast_asked;
  return op;
}

}  // namespace loom::glue::op_watch
