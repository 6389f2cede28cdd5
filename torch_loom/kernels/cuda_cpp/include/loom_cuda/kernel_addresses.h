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
// Of a kernel's parameters. Null where the kernel is not known.
struct ParameterSizes {
  const size_t* bytes = nullptr;
  size_t count = 0;
};

// One for each library that is compiled; a kernel is known from when its address is first taken.
class KernelAddresses {
 public:
  void add(const void* kernel, Launcher launcher, ParameterSizes parameters) {
    const std::lock_guard<std::mutex> lock(mutex_);
    kernels_.emplace(kernel, Known{launcher, parameters});
  }
  cudaError_t launch(const void* kernel, const AddressedLaunch& launch) {
    const Launcher launcher = find(kernel).launcher;
    return launcher == nullptr ? cudaErrorInvalidDeviceFunction : launcher(kernel, launch);
  }
  ParameterSizes parameters(const void* kernel) { return find(kernel).parameters; }

 private:
  struct Known {
    Launcher launcher = nullptr;
    ParameterSizes parameters;
  };
  Known find(const void* kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kernels_.find(kernel);
    return found == kernels_.end() ? Known{} : found->second;
  }

  std::mutex mutex_;
  std::map<const void*, Known> kernels_;
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
