// Products of matrices of 16-bit floats, summed in float32.
//
// Each result is one chain of additions in the order of the depth, from zero. Products of two such values are
// exact in float32 but at the ends of its range, so that any instruction set, number of threads and block
// size gives the same bits: those of a loop, and of a GPU's kernel that is written as one.
#pragma once

#include <cstdint>

namespace loom::numerics {

// Strides are in elements.
struct HalfMatrix {
  const uint16_t* values;
  int64_t row_stride, column_stride;
};

struct HalfProduct {
  HalfMatrix left;   // rows x depth
  HalfMatrix right;  // depth x columns
  bool is_bfloat16;  // else float16
  int64_t rows, columns, depth;
  float* sums;  // rows x columns, one row after another
};

// Rows of a block: a multiple of the rows of each tile.
constexpr int64_t kHalfRowsAtOnce = 240;
// Steps of the depth that are widened at a time, and where rows are few.
constexpr int64_t kHalfLeastDepth = 256, kHalfMostDepth = 2048;
// Elements of the panels that blocks share.
constexpr int64_t kHalfPanelsAtOnce = kHalfLeastDepth * 512;
// Elements between gathered columns: no power of two, for the caches.
constexpr int64_t kHalfPitch = kHalfMostDepth + 32;
constexpr int64_t kHalfScratch = kHalfRowsAtOnce * kHalfLeastDepth + kHalfPanelsAtOnce + 32 * kHalfPitch / 2;

}  // namespace loom::numerics
