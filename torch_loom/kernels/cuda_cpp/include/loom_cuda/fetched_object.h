// Objects of textures and surfaces in kernels.
#pragma once

#include "loom_cuda/checks.h"
#include "loom_cuda/runtime_api.h"
#include "loom_cuda/threads.h"

namespace loom_cuda {

// What an object is that a kernel names. Not checked, as a program has no pointer to it.
static __forceinline__ const Fetched& object_of(unsigned long long object, unsigned tag, const char* wrong) {
  const Fetched* found;
  {
    const Unchecked unchecked;  // and none where the kernel fails
    found = fetched(object, tag);
  }
  if (__builtin_expect(found == nullptr, 0)) loom_cuda_fail(700, wrong);
  return *found;
}
}  // namespace loom_cuda
