#include "torch/engine/engine.h"

#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace loom::glue {

using c10::DispatchKeySet;

c10::DeviceType parse_engine(const driver::Info& info) {
  try {
    return c10::Device(info.engine).type();
  } catch (const c10::Error&) {
    TORCH_CHECK(false, "the driver '", info.name, "' names the engine '", info.engine,
                "', which is no device type of this PyTorch: Info::engine must be one, such as cpu or meta");
  }
}

void prepare_engine(runtime::Device& device) {
  const c10::DeviceType type = parse_engine(device.driver().info());
  const DispatchKeySet keys(c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type)));
  device.set_engine({static_cast<int8_t>(type), keys.raw_repr()});
}

ShapeFunctionScope::ShapeFunctionScope()
    : tracing_(torch::jit::tracer::getTracingState()),
      functions_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
  if (tracing_ != nullptr) torch::jit::tracer::setTracingState(nullptr);
  at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
}

ShapeFunctionScope::~ShapeFunctionScope() {
  at::impl::PythonTorchFunctionTLS::set_disabled_state(functions_);
  if (tracing_ == nullptr) return;
  torch::jit::tracer::setTracingState(tracing_);
  // That has turned the tracer's key on, which may have been off for the moment.
  c10::impl::raw_local_dispatch_key_set = keys_;
}

}  // namespace loom::glue
