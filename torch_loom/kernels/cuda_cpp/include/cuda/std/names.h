// CUDA's library of C++ has the names of the host's.
#pragma once

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
