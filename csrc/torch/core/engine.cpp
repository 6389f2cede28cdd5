#include "torch/core/engine.h"

#include <c10/core/DeviceType.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace loom::glue {

using c10::DispatchKey;
using c10::DispatchKeySet;

c10::DeviceType engine_type() {
  return devices().driver().info().engine == driver::Engine::kMeta ? c10::DeviceType::Meta
                                                                   : c10::DeviceType::CPU;
}

DispatchKeySet engine_keys() {
  static const DispatchKeySet keys(engine_type() == c10::kMeta ? DispatchKey::Meta : DispatchKey::CPU);
  return keys;
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
