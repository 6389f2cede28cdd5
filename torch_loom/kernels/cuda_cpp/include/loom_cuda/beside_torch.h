// Behind the prelude, which is compiled once for programs with and without PyTorch.
#pragma once

// Types have the same numbers as in libraries that know nothing of a second compilation for a device.
#pragma push_macro("__CUDA_ARCH__")
#undef __CUDA_ARCH__
#if __has_include(<c10/util/TypeIndex.h>)
#include <c10/util/TypeIndex.h>
#endif
#pragma pop_macro("__CUDA_ARCH__")
