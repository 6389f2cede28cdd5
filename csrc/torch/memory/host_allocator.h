#pragma once

#include <c10/core/Allocator.h>

#include "runtime/commands.h"

namespace loom::glue {

// Pinned host memory, cached by PyTorch's own CachingHostAllocatorImpl.
c10::Allocator* pinned_allocator();
// True for any address inside pinned memory.
bool is_pinned(const void* address);
// The host memory of a copy that was just submitted: if it is pinned, it is not handed out again before the
// stream has come that far.
void keep_pinned(const c10::DataPtr& memory, runtime::StreamRef stream);

}  // namespace loom::glue
