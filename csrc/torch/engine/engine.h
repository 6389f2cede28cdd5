// The engine: the PyTorch device type whose kernels do the arithmetic, and the dispatch keys of both sides.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>

#include "torch/core/device.h"

namespace torch::jit::tracer {
struct TracingState;
}

namespace loom::glue {

// Bits of a tensor that change how its memory reads. Everything else in a key set says where it lives.
inline constexpr c10::DispatchKeySet kMathBits = c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
                                                 c10::DispatchKeySet(c10::DispatchKey::Negative) |
                                                 c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);

inline bool is_loom(const at::Tensor& tensor) { return tensor.device().type() == device_type(); }
// Whether the chip of a tensor has a kernel; of a tensor elsewhere PyTorch's own kernels say what is wrong.
inline bool chip_has(runtime::FusedKernel kernel, const at::Tensor& tensor) {
  return is_loom(tensor) && chip_has(kernel, tensor.device().index());
}

// The device type that a driver names as its engine. Throws when PyTorch has none of that name.
c10::DeviceType parse_engine(const driver::Info& info);
// Notes the engine in a device that is made.
void prepare_engine(runtime::Device& device);
// The device of one of our tensors, which belongs to the devices that the program sees (memory/worlds.h).
inline runtime::Device& device_of(const at::Tensor& tensor) {
  return devices().device(tensor.device().index());
}
// The device type that lent memory of a device is wrapped as.
inline c10::DeviceType engine_type(const runtime::Device& device) {
  return static_cast<c10::DeviceType>(device.engine().type);
}
// The keys under which the kernels of a device's engine are found.
inline c10::DispatchKeySet engine_keys(const runtime::Device& device) {
  return {c10::DispatchKeySet::RAW, device.engine().keys};
}

// Where the ops of an engine are registered that does arithmetic: those are the ops that the device has.
inline constexpr c10::DispatchKey kEngineOps = c10::DispatchKey::CPU;
inline constexpr c10::DispatchKey kEngineSparseOps = c10::DispatchKey::SparseCPU;
inline constexpr c10::DispatchKey kEngineSparseCsrOps = c10::DispatchKey::SparseCsrCPU;
inline constexpr c10::DispatchKey kEngineNestedOps = c10::DispatchKey::NestedTensorCPU;
inline constexpr c10::DispatchKey kEngineQuantizedOps = c10::DispatchKey::QuantizedCPU;

// While it lives, what this thread runs on the engine is part of one op of the device, invisible to the
// program: no gradient, cast, trace, transform, mode or profiled range sees it. The op itself has been
// through all of them.
class EngineScope {
 public:
  EngineScope() : keys_(&c10::impl::raw_local_dispatch_key_set), saved_keys_(*keys_) {
    // What modes add to every op of a thread (tracer, functorch, functionalisation, Python) is in the first
    // set.
    keys_->set_included(c10::default_included_set);
    keys_->set_excluded(kBelowPrograms);
    // Turning them off costs most of a microsecond. What PyTorch's dispatcher asks before an op costs 3 ns,
    // at::hasCallbacks(), which takes a lock, 20.
    if (at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value()) [[unlikely]]
      no_ranges_.emplace();
  }
  ~EngineScope() { *keys_ = saved_keys_; }
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

 private:
  static constexpr c10::DispatchKeySet kBelowPrograms =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

  c10::impl::PODLocalDispatchKeySet* const keys_;  // this thread's, looked up once
  const c10::impl::PODLocalDispatchKeySet saved_keys_;
  std::optional<at::DisableRecordFunctionGuard> no_ranges_;
};

// Whether the tracer of torch.jit is on below an op that it does not record: it records the op's parts.
inline bool is_tracing_parts() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer) &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Tracer);
}

// While it lives, Python code that this thread runs to infer shapes is seen by no torch.jit tracer and no
// torch-function mode (torch.device as a context would move what it makes).
class ShapeFunctionScope {
 public:
  ShapeFunctionScope();
  ~ShapeFunctionScope();
  ShapeFunctionScope(const ShapeFunctionScope&) = delete;
  ShapeFunctionScope& operator=(const ShapeFunctionScope&) = delete;

 private:
  const c10::impl::PODLocalDispatchKeySet keys_ = c10::impl::raw_local_dispatch_key_set;
  const std::shared_ptr<torch::jit::tracer::TracingState> tracing_;
  const at::impl::TorchFunctionDisabledState functions_;
};

}  // namespace loom::glue
