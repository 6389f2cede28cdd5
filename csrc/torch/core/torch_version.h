// Everything that depends on which PyTorch this is built against. Other files include it and never test
// versions: each difference has a name here, with the version in which it ends. docs/upstream.md has the
// table.
#pragma once

#include <ATen/core/IListRef.h>
#include <torch/version.h>

#define LOOM_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

// torch_loom/torch_version.py says the same to setup.py, in sentences.
#if !LOOM_TORCH_AT_LEAST(13)
#error "torch-loom needs the headers of PyTorch 2.13 or later"
#endif
#if LOOM_TORCH_AT_LEAST(16) && !defined(LOOM_TRIES_ANY_TORCH)
#error "torch-loom does not know PyTorch 2.16 and later: TORCH_LOOM_ANY_TORCH=1 tries"
#endif

// The last parameter of c10_cuda_check_implementation(): a log of the error, since 2.14.
#if LOOM_TORCH_AT_LEAST(14)
#define LOOM_HAS_ERROR_LOG 1
#define LOOM_ERROR_LOG , CUDAErrorLogCapture*
#else  // ends with 2.13
#define LOOM_HAS_ERROR_LOG 0
#define LOOM_ERROR_LOG
#endif

namespace loom::glue {

// How kernels of `_scaled_grouped_mm_v2` take the scales: as one of structured ops since 2.14.
#if LOOM_TORCH_AT_LEAST(14)
using ScaleList = const at::ITensorListRef&;
#else  // ends with 2.13
using ScaleList = at::TensorList;
#endif

}  // namespace loom::glue
