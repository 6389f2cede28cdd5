// Matrix products of a GPU's matrix instructions over values that float32 holds.
#pragma once

#include <cstdint>
#include <memory>

#include "numerics/tensor_core/rules.h"
#include "util/aligned.h"

namespace loom::numerics::tensor_core {

// Exponents of the operands of a row or a panel that are not zero, and whether all are finite.
struct Range {
  int16_t least, most;
  bool is_finite;
};

// An operand laid out: rows of the left one, panels of the right one, whose width the kernels say.
struct Packed {
  Packed(bool is_left, int64_t count, int64_t num_ranges);

  AlignedArray<float> values;
  AlignedArray<int32_t> left_exponents;  // twice in 16 bits
  AlignedArray<int16_t> right_exponents;
  std::unique_ptr<Range[]> ranges;
};

inline constexpr int kZero = -126;  // a zero's exponent

// How an operand's values are read.
struct Reading {
  uint32_t kept;       // of float32's bits
  int least_exponent;  // denormals keep it

  static Reading of(Operand operand);
};

struct Product {
  const float* left_values;
  const int32_t* left_exponents;
  const Range* left_ranges;
  int64_t left_stride;
  const float* right_values;  // in panels: depth x the kernels' width each
  const int16_t* right_exponents;
  const Range* right_ranges;
  // The operands themselves, for the slow way.
  const float* left;   // rows x depth
  const float* right;  // depth x columns
  int64_t right_row_stride, right_column_stride;
  int64_t true_depth, depth, columns;  // depth: with the zeros that fill the last step
  Rule rule;
  float* out;  // rows x columns: the sums, added to
  int64_t out_stride;
  bool starts_easily;  // the sums are zeros or numbers that leave float32 and int32 that room

  // Whether float32 and int32 have room for a row's terms in a panel.
  bool is_easy(int64_t row, int64_t panel) const {
    const Range a = left_ranges[row], b = right_ranges[panel];
    constexpr int kMost = 60, kLeast = -40;
    return a.is_finite && b.is_finite && a.most <= kMost && b.most <= kMost && a.least >= -kMost &&
           b.least >= -kMost && a.least + b.least >= kLeast && starts_easily && !rule.has_half_sums;
  }
};

// One row of one panel in integers.
void multiply_slowly(const Product& product, int64_t row, int64_t panel, int64_t panel_width);

// The bits that an operand has of a value that it holds.
uint32_t bits_of(Operand operand, float value);

}  // namespace loom::numerics::tensor_core
