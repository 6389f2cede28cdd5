// CUDA's library of C++ has the names of the host's.
#pragma once

#include "cuda/rounding.h"

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
