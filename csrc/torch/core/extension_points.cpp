#include "torch/core/extension_points.h"

#include <ATen/native/DispatchStub.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/runtime.h"

namespace loom::glue {

namespace {

bool is_out_of_tree() { return device_type() == c10::DeviceType::PrivateUse1; }

}  // namespace

void CudaHooks::deviceSynchronize(c10::DeviceIndex index) const {
  check_device_index(index);
  translated([&] { runtime::synchronize_device(index); });
}

void register_storage_factory(c10::StorageImplCreateHelper factory) {
  if (is_out_of_tree()) c10::SetStorageImplCreate(device_type(), factory);
}

void register_attention_choice(at::native::fused_sdp_choice_fn choice) {
  auto& stub = at::native::_fused_sdp_choice_stub;
  if (is_out_of_tree()) {
    stub.set_privateuse1_dispatch_ptr(choice);
  } else {
    stub.set_cuda_dispatch_ptr(choice);
  }
}

void register_flattened_indices(at::native::flatten_indices_fn flatten) {
  auto& stub = at::native::flatten_indices_stub;
  if (is_out_of_tree()) {
    stub.set_privateuse1_dispatch_ptr(flatten);
  } else {
    stub.set_cuda_dispatch_ptr(flatten);
  }
}

void register_profiler_stubs(torch::profiler::impl::ProfilerStubs* stubs) {
  if (is_out_of_tree()) {
    torch::profiler::impl::registerPrivateUse1Methods(stubs);
  } else {
    torch::profiler::impl::registerCUDAMethods(stubs);
  }
}

}  // namespace loom::glue
