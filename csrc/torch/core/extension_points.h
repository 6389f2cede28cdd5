// Extension points that PyTorch has under another name for each device type: one function each, which takes
// that of device_type().
#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/StorageImpl.h>

#include <new>

#include "torch/core/device.h"

namespace at::native {
// PyTorch's own, for which it has no header.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native

namespace torch::profiler::impl {
struct ProfilerStubs;
}

namespace loom::glue {

// The two bases of a class of hooks. The class derives from either and gives both the same methods.
struct BackendHooks : at::PrivateUse1HooksInterface {
  virtual void resize(const c10::Storage& storage, size_t bytes) const = 0;
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const final {
    resize(storage, bytes);
  }
};
struct CudaHooks : at::CUDAHooksInterface {
  virtual void resize(const c10::Storage& storage, size_t bytes) const = 0;
  bool hasCUDA() const final { return true; }
  // Libraries that a program may prefer; there is one kernel for each op whichever it is.
  bool hasMAGMA() const final { return true; }
  bool hasCuSOLVER() const final { return true; }
  bool hasCuBLASLt() const final { return true; }
  int getNumGPUs() const final { return deviceCount(); }
  c10::DeviceIndex current_device() const final { return getCurrentDevice(); }
  at::Allocator* getCUDADeviceAllocator() const final { return c10::GetAllocator(device_type()); }
  void deviceSynchronize(c10::DeviceIndex index) const final;

  // How many plans of transforms each device may keep: a figure that programs set and read. No plan is made.
  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex index) const final;
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex index, int64_t max_size) const final;
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex index) const final;
  void cuFFTClearPlanCache(c10::DeviceIndex index) const final;
};

template <template <typename Base> class Hooks>
void register_hooks_of() {
  if (device_type() == c10::DeviceType::PrivateUse1) {
    // PyTorch keeps them for the life of the process.
    return at::RegisterPrivateUse1HooksInterface(new Hooks<BackendHooks>);
  }
  // `import torch` has asked for CUDA's hooks before any extension can be loaded, and keeps what it was
  // given: an object without data of its own, in whose place ours is made.
  using Own = Hooks<CudaHooks>;
  static_assert(sizeof(Own) == sizeof(at::CUDAHooksInterface));
  const at::CUDAHooksInterface* kept = &at::detail::getCUDAHooks();
  new (const_cast<at::CUDAHooksInterface*>(kept)) Own;
}

// Makes the storages that Python makes by themselves. CUDA's type has no such point.
void register_storage_factory(c10::StorageImplCreateHelper factory);

void register_attention_choice(at::native::fused_sdp_choice_fn choice);

// What composite ops call to number the positions of a sparse tensor.
void register_flattened_indices(at::native::flatten_indices_fn flatten);

// `stubs` must live as long as the process.
void register_profiler_stubs(torch::profiler::impl::ProfilerStubs* stubs);

}  // namespace loom::glue
