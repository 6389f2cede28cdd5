// Failures of driver and runtime as PyTorch's own exception types.
#pragma once

#include <c10/util/Exception.h>

#include "driver/error.h"

namespace loom::glue {

// Rethrows the exception in flight as PyTorch's type for it. Call it inside a catch block only.
[[noreturn]] void rethrow_as_torch();

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
