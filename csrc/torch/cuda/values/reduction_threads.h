// How CUDA's reductions divide their elements among threads, blocks and multiprocessors.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda/Reduce.cuh).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/chip.h"

namespace loom::glue {

constexpr int64_t kUnroll = 4;  // accumulators of a thread, and results that lie together

inline int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

struct Dim {
  int64_t size, stride;
};

// The dimensions of a reduction, the fastest first, joined where they can be.
struct Shape {
  std::vector<Dim> reduced, kept;
  int64_t count = 1, results = 1;  // elements of a result; results
};

Shape shape_of(const at::Tensor& self, const std::vector<bool>& is_reduced);

// The threads that add up one result: `lanes` beside each other and `rows` of them in a block, and blocks.
struct Threads {
  int64_t lanes = 1, rows = 1, blocks = 1;
  int64_t width = 1, height = 1;  // of a block
  int64_t vector = 1;             // elements that a thread loads together: not 1 where they lie so
  bool is_inner = false;          // the elements of a result lie closer than results

  int64_t all() const { return lanes * rows * blocks; }
};

// `vector`: how many elements of the operand's dtype a load takes.
Threads threads_of(const Shape& shape, int64_t first_element, int64_t vector,
                   const runtime::RandomGrid& grid);

}  // namespace loom::glue
