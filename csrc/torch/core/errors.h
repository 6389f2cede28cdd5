// Failures of driver and runtime as PyTorch's own exception types.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "driver/error.h"

namespace loom::glue {

// Rethrows the exception in flight as PyTorch's type for it. Call it inside a catch block only.
[[noreturn]] void rethrow_as_torch();

// Raises ImplicitSynchronizationError of torch_loom.errors; under the name cuda RuntimeError, as on a GPU.
[[noreturn]] void raise_implicit_sync(const std::string& what);
// Raises KernelCheckError of torch_loom.errors, under any name of the device.
[[noreturn]] void raise_kernel_check(const std::string& what);
// Raises what is an IndexError and, as CUDA's error of a device-side assert, a torch.AcceleratorError.
[[noreturn]] void raise_asserted_index(const std::string& what);

// Runs `body`, turning loom errors into PyTorch's. For calls into driver and runtime.
template <typename F>
auto translated(F&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const loom::Error&) {
    rethrow_as_torch();
  }
}

}  // namespace loom::glue
