// The inner loops, compiled for several instruction sets; the best that the processor has is taken at run
// time. All of them give the same bits. They know nothing of PyTorch and start no threads: the caller splits
// the work.
#pragma once

#include <cstdint>

#include "numerics/formats.h"

namespace loom::numerics {

// Which bits of a significand take part in a pass of a product, as masks of float32's bits.
struct OperandMask {
  uint32_t kept;        // of the operand itself
  uint32_t subtracted;  // the part without these bits is what is wanted; 0: all that is kept
};

// How the running sum of a strict product is rounded. Bits of float64.
struct Accumulate {
  int dropped_bits;          // of float64's 52 mantissa bits
  uint64_t smallest_normal;  // below it is zero, but for what rounds up to it
  uint64_t flushed_below;
  uint64_t largest;         // what a larger finite sum becomes
  uint64_t overflow_above;  // sums above `largest`, once rounded
};

Accumulate accumulate_of(Format format);

// One product of a strict matmul: out[m][n] = sum over k of left[m][k] * right[k][n], both packed by the
// caller as float64: `left` as `rows` x `depth` pairs (high, low), `right` in panels of `panel_width`
// columns.
struct StrictProduct {
  const double* left_high;
  const double* left_low;  // rows x depth
  const double* right_high;
  const double* right_low;  // panels: depth x panel_width each
  int64_t rows, depth, columns;
  int num_passes;  // 1 to 4: high·high, low(right)·high, high·low(left), low·low
  Accumulate accumulate;
  float* out;  // rows x columns
  int64_t out_stride;
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
  int64_t panel_width;
  // Rows [first_row, last_row) of a strict product.
  void (*strict_product)(const StrictProduct& product, int64_t first_row, int64_t last_row);
};

// What this processor runs best.
const Kernels& kernels();
// By name ("avx512", "avx2", "baseline"), for tests; null: the processor or the build lacks it.
const Kernels* kernels_named(const char* name);
// Makes kernels() return these until the next call; null: the best again.
void use_kernels(const Kernels* chosen);

}  // namespace loom::numerics
