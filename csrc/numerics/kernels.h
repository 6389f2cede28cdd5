// The inner loops, compiled for several instruction sets; the best that the processor has is taken at run
// time. All of them give the same bits. They know nothing of PyTorch and start no threads: the caller splits
// the work.
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/half_products.h"
#include "numerics/tensix/matrix_unit.h"
#include "numerics/tensix/products.h"
#include "numerics/tensor_core/products.h"

namespace loom::numerics {

// Which bits of a significand take part in a pass of a product, as masks of float32's bits.
struct OperandMask {
  uint32_t kept;        // of the operand itself
  uint32_t subtracted;  // the part without these bits is what is wanted; 0: all that is kept
};

struct Kernels {
  const char* name;
  // Values in `format`; `first` (kFloat32, kFloat16, kFloat16_b, or kInvalid for none) is rounded to before.
  // A row ends its last block. `streams`: stores that leave no copy in the caches, for large results.
  void (*quantize)(Format format, Format first, const float* in, float* out, int64_t rows, int64_t columns,
                   bool streams, Counts& counts);
  // As a fidelity's pass sees an operand. `drops_nonfinite`: infinities and NaNs become zero.
  void (*mask)(OperandMask mask, bool drops_nonfinite, const float* in, float* out, int64_t count);
  // A hash of `count` words of 32 bits: inputs that differ in any word have, almost surely, different hashes.
  uint64_t (*fingerprint)(const void* words, int64_t count);
  // Operands of a matrix unit's product, laid out: rows of the left one, panels of the right one.
  int64_t tensix_panel_width;
  void (*tensix_pack_left)(const tensix::Reading& reading, const float* left, int64_t first_row,
                           int64_t last_row, int64_t true_depth, int64_t depth, tensix::Packed& packed);
  void (*tensix_pack_right)(const tensix::Reading& reading, const float* right, int64_t first_panel,
                            int64_t last_panel, int64_t true_depth, int64_t columns, int64_t row_stride,
                            int64_t column_stride, int64_t depth, tensix::Packed& packed);
  // Rows [first_row, last_row) of a matrix unit's product.
  void (*tensix_product)(const tensix::Product& product, int64_t first_row, int64_t last_row);
  // `count` results of an elementwise instruction, with all its passes; `how` without operands. `out` may be
  // an operand.
  void (*tensix_elementwise)(const tensix::Product& how, tensix::Elementwise op, const float* left,
                             const float* right, float* out, int64_t count);
  // The same of a GPU's matrix instructions.
  int64_t core_panel_width;
  void (*core_pack_left)(const tensor_core::Reading& reading, const float* left, int64_t first_row,
                         int64_t last_row, int64_t true_depth, int64_t depth, tensor_core::Packed& packed);
  void (*core_pack_right)(const tensor_core::Reading& reading, const float* right, int64_t first_panel,
                          int64_t last_panel, int64_t true_depth, int64_t columns, int64_t row_stride,
                          int64_t column_stride, int64_t depth, tensor_core::Packed& packed);
  void (*core_product)(const tensor_core::Product& product, int64_t first_row, int64_t last_row);
  // Columns [first_column, last_column) of a product of 16-bit floats, of which the first is a panel's.
  int64_t half_panel_width;
  void (*half_product)(const HalfProduct& product, int64_t first_column, int64_t last_column,
                       float* scratch);  // of kHalfScratch floats
};

// What this processor runs best.
const Kernels& kernels();
// By name ("avx512", "avx2", "baseline"), for tests; null: the processor or the build lacks it.
const Kernels* kernels_named(const char* name);
// Makes kernels() return these until the next call; null: the best again.
void use_kernels(const Kernels* chosen);

}  // namespace loom::numerics
