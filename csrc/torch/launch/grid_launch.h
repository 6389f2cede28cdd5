// Launches of kernels of a program's own that run as a grid of programs: torch_loom/kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "numerics/blocks.h"
#include "runtime/commands.h"

namespace loom::glue {

// What torch_loom/kernels compiles: runs the programs numbers[3] to numbers[4] of a grid of numbers[0] to
// numbers[2]. Returns null or what went wrong, whose first character says what: M an illegal memory access,
// A an assertion, S what the sanitizer found, T a time limit. Text that lives until the thread's next call.
using GridFunction = const char* (*)(void* const* addresses, const int64_t* numbers, const char* scalars);

// A compiled kernel, as long as launches of it are under way.
struct GridKernel {
  std::string name;
  GridFunction function;
  std::vector<bool> is_written;  // of each argument that is an address
  size_t block_bytes;            // of memory that a program needs
  bool is_watched = false;       // it reports each access to grid_watch.h
  int64_t number = 0;            // of torch_loom/chips/cost/launches.py
  std::vector<int> deciding;     // the places of the whole numbers that its cost depends on
  int64_t num_threads = 0;       // of a program on a GPU
  // What a program took last; 0: not known.
  std::atomic<int64_t> program_ns{0};
};

// One argument that is an address.
struct GridAddress {
  int64_t address = 0;
  at::Tensor tensor;  // undefined: an address that is no tensor's
};

// How long a launch may take, of CUDA C++ as well; 0: as long as it likes.
void set_time_limit(double seconds);

// How kernels that this thread launches from now on multiply blocks; null: as the host does.
std::shared_ptr<const numerics::tensor_core::BlockRules> set_block_rules(
    std::shared_ptr<const numerics::tensor_core::BlockRules> rules);

// Submits a launch to the current stream of a device. `numbers`: the arguments, 64 bits each; those that are
// addresses are filled in here. `places`: where they are among them. The caller has the GIL released.
// Throws ValueError for tensors of another device.
void submit_grid(std::shared_ptr<GridKernel> kernel, int device, const std::array<int64_t, 3>& grid,
                 std::vector<int64_t> numbers, const std::vector<int>& places,
                 std::vector<GridAddress> addresses);

}  // namespace loom::glue
