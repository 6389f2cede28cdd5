#include "torch/memory/lazy_fill.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/copy_ops.h>

#include "torch/engine/engine.h"
#include "torch/engine/generator.h"
#include "torch/memory/lazy.h"
#include "torch/memory/worlds.h"

namespace loom::glue {

namespace {

bool is_host(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == c10::kStrided;
}

// An unmaterialised tensor, or an empty tensor that a kernel will resize.
bool can_be_filled(const at::Tensor& tensor) {
  if (!is_loom(tensor) || tensor.layout() != c10::kStrided || tensor._is_zerotensor()) return false;
  return is_unmaterialised(tensor) || (tensor.numel() == 0 && tensor.storage().nbytes() == 0);
}

// tril_indices: there is no operand to fill; the host's result is copied, which leaves it waiting.
void make_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::IValue& device) {
  const c10::Device own = resolve_device(device.toOptional<c10::Device>());
  device = c10::Device(c10::kCPU);
  op.redispatchBoxed(engine_keys(devices().device(own.index())), stack);
  c10::IValue& result = stack->back();
  result = result.toTensor().to(own);
}

}  // namespace

bool fill_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                  c10::function_ref<void(int device)> check) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  c10::IValue* const values = stack->data() + (stack->size() - arguments.size());
  c10::IValue *filled = nullptr, *generator = nullptr, *device = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "generator") generator = &values[i];
    if (arguments[i].name() == "device") device = &values[i];
    if (!values[i].isTensor()) continue;
    if (arguments[i].is_out() ||
        (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite())) {
      filled = &values[i];
    } else if (!is_host(values[i].toTensor()) || values[i].toTensor().dim() != 0) {
      return false;
    }
  }
  const EngineScope scope;
  if (filled == nullptr) {
    if (device == nullptr) return false;
    const int index = resolve_device(device->toOptional<c10::Device>()).index();
    if (!devices().device(index).runs_kernels() || !new_storages_wait(index)) return false;
    check(index);
    make_on_host(op, stack, *device);
    return true;
  }
  const at::Tensor tensor = filled->toTensor();
  check_world(tensor, op.schema().name().c_str());
  if (!can_be_filled(tensor)) return false;
  if (!new_storages_wait(tensor.device().index())) return false;
  check(tensor.device().index());
  const std::string& name = op.schema().name();
  const bool done = on_host(tensor, [&](at::Tensor& host) {
    if (generator != nullptr) {
      const auto given = generator->toOptional<at::Generator>();
      *generator = engine_generator(generator_of(given, tensor.device().index(), name.c_str()),
                                    /*is_kept=*/false);
    }
    *filled = host;
    op.redispatchBoxed(engine_keys(glue::device_of(tensor)), stack);
  });
  if (done) stack->back() = tensor;
  return done;
}

bool copy_on_host(const at::Tensor& destination, const at::Tensor& source) {
  const bool fills = is_unmaterialised(destination) && is_host(source);
  if (!fills && !(is_unmaterialised(source) && is_host(destination))) return false;
  const runtime::Device& own = glue::device_of(fills ? destination : source);
  if (!own.runs_kernels()) {
    TORCH_CHECK(at::is_expandable_to(source.sizes(), destination.sizes()), "copy_: a tensor of shape ",
                source.sizes(), " does not broadcast to ", destination.sizes());
    return true;  // there are no contents
  }
  const EngineScope scope;
  return on_host(fills ? destination : source, [&](at::Tensor& host) {
    at::Tensor to = fills ? host : destination;
    at::_ops::copy_::redispatch(engine_keys(own), to, fills ? source : host, /*non_blocking=*/false);
  });
}

}  // namespace loom::glue
