#pragma once

#include <c10/core/Allocator.h>

namespace loom::glue {

// Pinned host memory, cached by PyTorch's own CachingHostAllocatorImpl.
c10::Allocator* pinned_allocator();
// True for any address inside pinned memory.
bool is_pinned(const void* address);

}  // namespace loom::glue
