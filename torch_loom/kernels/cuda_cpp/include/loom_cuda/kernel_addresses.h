// Kernels by their addresses alone: what one source casts to void*, another one launches.
#pragma once

#include <map>
#include <mutex>

#include "loom_cuda/runtime_api.h"

namespace loom_cuda {

struct AddressedLaunch {
  dim3 grid, block;
  void** values;
  size_t shared_bytes;
  cudaStream_t stream;
  bool is_cooperative;
};
using Launcher = cudaError_t (*)(const void* kernel, const AddressedLaunch& launch);

// One for each library that is compiled; a kernel is known from when its address is first taken.
class KernelAddresses {
 public:
  void add(const void* kernel, Launcher launcher) {
    const std::lock_guard<std::mutex> lock(mutex_);
    launchers_.emplace(kernel, launcher);
  }
  cudaError_t launch(const void* kernel, const AddressedLaunch& launch) {
    Launcher launcher = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = launchers_.find(kernel);
      if (found != launchers_.end()) launcher = found->second;
    }
    return launcher == nullptr ? cudaErrorInvalidDeviceFunction : launcher(kernel, launch);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Launcher> launchers_;
};
inline KernelAddresses& kernel_addresses() {
  static KernelAddresses all;
  return all;
}

}  // namespace loom_cuda

static inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** values,
                                           size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  return loom_cuda::kernel_addresses().launch(kernel, {grid, block, values, shared_bytes, stream, false});
}
static inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block,
                                                      void** values, size_t shared_bytes = 0,
                                                      cudaStream_t stream = nullptr) {
  return loom_cuda::kernel_addresses().launch(kernel, {grid, block, values, shared_bytes, stream, true});
}
