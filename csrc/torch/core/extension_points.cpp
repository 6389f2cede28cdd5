#include "torch/core/extension_points.h"

#include <ATen/native/DispatchStub.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <array>
#include <atomic>

#include "runtime/runtime.h"

namespace loom::glue {

namespace {

// What CUDA's cache of plans takes where a program does not say.
constexpr int64_t kDefaultMaxPlans = 4096;

// Of each device that an index can name, the difference to the default: hooks have no data of their own.
std::array<std::atomic<int64_t>, 128> more_plans{};

std::atomic<int64_t>& more_plans_of(c10::DeviceIndex index) {
  check_device_index(index);
  return more_plans.at(static_cast<size_t>(index));
}

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

int64_t CudaHooks::cuFFTGetPlanCacheMaxSize(c10::DeviceIndex index) const {
  return kDefaultMaxPlans + more_plans_of(index).load();
}

void CudaHooks::cuFFTSetPlanCacheMaxSize(c10::DeviceIndex index, int64_t max_size) const {
  TORCH_CHECK(max_size >= 0, "cufft_plan_cache.max_size must be non-negative, but got ", max_size);
  more_plans_of(index).store(max_size - kDefaultMaxPlans);
}

int64_t CudaHooks::cuFFTGetPlanCacheSize(c10::DeviceIndex index) const {
  check_device_index(index);
  return 0;
}

void CudaHooks::cuFFTClearPlanCache(c10::DeviceIndex index) const { check_device_index(index); }

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
