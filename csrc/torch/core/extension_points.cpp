#include "torch/core/extension_points.h"

#include <ATen/native/DispatchStub.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/runtime.h"

namespace loom::glue {

namespace {

bool is_out_of_tree() { return device_type() == c10::DeviceType::PrivateUse1; }

template <typename Stub, typename Function>
void set_kernel(Stub& stub, Function function) {
  if (is_out_of_tree()) {
    stub.set_privateuse1_dispatch_ptr(function);
  } else {
    stub.set_cuda_dispatch_ptr(function);
  }
}

}  // namespace

void CudaHooks::deviceSynchronize(c10::DeviceIndex index) const {
  check_device_index(index);
  translated([&] { runtime::synchronize_device(index); });
}

void register_storage_factory(c10::StorageImplCreateHelper factory) {
  if (is_out_of_tree()) c10::SetStorageImplCreate(device_type(), factory);
}

void register_attention_choice(at::native::fused_sdp_choice_fn choice) {
  set_kernel(at::native::_fused_sdp_choice_stub, choice);
}

void register_flattened_indices(at::native::flatten_indices_fn flatten) {
  set_kernel(at::native::flatten_indices_stub, flatten);
}

void register_profiler_stubs(torch::profiler::impl::ProfilerStubs* stubs) {
  if (is_out_of_tree()) {
    torch::profiler::impl::registerPrivateUse1Methods(stubs);
  } else {
    torch::profiler::impl::registerCUDAMethods(stubs);
  }
}

}  // namespace loom::glue
