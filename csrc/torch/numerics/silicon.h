#pragma once

#include "numerics/tensix/products.h"
#include "torch/numerics/common.h"

namespace loom::numerics::glue {

// A product of float32 matrices whose values the formats hold; the right one by its strides.
struct SiliconOperands {
  const float* left;   // rows x depth
  const float* right;  // depth x columns
  int64_t rows, depth, columns;
  int64_t right_row_stride, right_column_stride;
  int64_t padded_depth;  // with the zeros that fill faces or tiles, a multiple of 16
  bool starts_at_zero;   // `out` holds zeros
};

// How many passes a fidelity has, and how the matrix unit is set. Sums of 16 bits that do not go with the
// operands are refused.
int num_passes(Fidelity fidelity);
tensix::Unit unit_of(const Precision& precision, const Silicon& silicon);

// Adds a product to `out` [rows, columns], the destination, as the matrix unit computes it. Uses the intra-op
// threads.
void multiply_silicon(const SiliconOperands& matrices, const tensix::Unit& unit, int first_pass,
                      int last_pass, float* out);

// matmul() as the matrix unit computes it, blocks of K and their partial sums included; shapes as PyTorch's
// matmul takes them. The values are those of the destination. `out_format`: in which partial sums wait in
// memory.
at::Tensor silicon_matmul(const at::Tensor& self, const at::Tensor& other, const Precision& precision,
                          const Silicon& silicon, int64_t out_format);

}  // namespace loom::numerics::glue
