// What `loom kernels` learns of launches of CUDA C++.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace loom::glue {

struct LaunchNote {
  int device;
  std::string name, path;  // path: "folder/scale.cu:12", of the launch
  std::array<int64_t, 3> grid, block;
  size_t shared_bytes;
  bool is_checked;
  std::vector<int64_t> sizes;  // of the allocations that its arguments point into, in bytes
};

// Has a function called with each launch, before it is submitted.
using LaunchListener = void (*)(const LaunchNote& launch);
void set_launch_listener(LaunchListener listener);

}  // namespace loom::glue
