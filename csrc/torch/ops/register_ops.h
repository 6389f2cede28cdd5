// Registering kernels by name, when the extension is loaded (module.cpp). What a file registers for itself
// with TORCH_LIBRARY_IMPL is there before.
#pragma once

#include <torch/library.h>

namespace loom::glue {

// The ops that borrow without the stack (unboxed.cpp).
void register_unboxed(torch::Library& library);

// The boxed kernel for every op of the engine that has no kernel here yet. By name, because PyTorch would
// prefer composite kernels of its own to the fallback. Call it last.
void register_boxed();

}  // namespace loom::glue
