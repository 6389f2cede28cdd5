// Everything that depends on which PyTorch this is built against. Other files include it and never test
// versions.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "torch-loom needs the headers of PyTorch 2.11 or later"
#endif
