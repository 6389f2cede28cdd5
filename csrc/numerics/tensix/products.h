// Matrix products as the matrix unit computes them, over values that float32 holds: those of the 8-bit family
// as they are, exponent 255 an ordinary number, those of the 5-bit family by their values. Results are the
// destination's values in the same way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "numerics/tensix/words.h"
#include "util/aligned.h"

namespace loom::numerics::tensix {

inline constexpr int kGroup = 8;          // products that are added exactly
inline constexpr int kFaceDepth = 16;     // products of a step
inline constexpr int kShortOffset = 112;  // of a field of 5 bits in float32's exponents

inline constexpr int kNothing = -4000;          // the exponent of a zero: no product has its like
inline constexpr int kNoByte = -128;            // the same in 8 bits, to which sums saturate
inline constexpr int kNoExponent = 1000;        // the least of none
inline constexpr int kLeastRightExponent = 40;  // below it float32 may lack the bit that moves halves
inline constexpr int kLeastTop = 26;            // of a sum, so that 2^(top - 151) is a normal float32
inline constexpr int kLeastByte =
    kLeastTop + 12 - 127;             // of groups of zeros, which the last pass lowers by 12
inline constexpr int kBelowAll = 39;  // of products, by which it lies below all that is left when sums cancel

// kAmple: no sum can overflow or be flushed to zero. kTooLittle: only integers are exact.
enum class Room { kAmple, kEnough, kTooLittle };

// The exponent fields of the operands of a row or a panel that are not zero.
struct Range {
  int16_t least, most;
  bool is_hard;  // float32 lacks bits of the parts
};

// What a product is computed with. Operands have been laid out by a Packed.
struct Product {
  const float* left_high;
  const float* left_low;
  const int32_t* left_exponents;  // twice in 16 bits
  const int32_t* left_bytes;      // four times in 8 bits, less 127
  const Range* left_ranges;       // of rows
  int64_t left_stride;
  int64_t depth, columns;
  const float* right_high;  // in panels: depth x the kernels' width each
  const float* right_low;
  const int16_t* right_exponents;
  const int8_t* right_bytes;
  const Range* right_ranges;  // of panels
  // The operands themselves, for the slow way.
  const float* left;   // rows x depth
  const float* right;  // depth x columns
  int64_t right_row_stride, right_column_stride;
  int64_t true_depth;  // without the zeros that fill the last face
  Unit unit;
  int first_pass, last_pass;
  // In float32's exponents.
  int32_t offsets[4], least_exponents[4];
  int32_t least_byte;  // what exponents are raised to where there is room
  int32_t lowest_exponent, largest_exponent, overflow, half_of_last;
  int32_t least_ample;
  bool is_wide, has_fault;
  bool has_exact_zeros;       // zeros have an exponent that counts, `least_byte`
  bool starts_small = false;  // the destination holds zeros alone before
  float* out;                 // rows x columns: the destination, added to
  int64_t out_stride;

  // What float32's exponents have room for in the products of a row and a panel.
  Room room(int64_t row, int64_t panel) const {
    const Range left = left_ranges[row], right = right_ranges[panel];
    const int most = left.most + right.most - 127;
    if (right.is_hard || left.most == 255 || most > 241) return Room::kTooLittle;
    const int least = left.least + right.least - 127;
    const bool is_ample = most < 180 && starts_small && least - 12 >= least_ample;
    return is_ample && has_bytes(std::max(left.most, right.most), least) ? Room::kAmple : Room::kEnough;
  }

  // Whether what 8 bits make of a zero is raised to `least_byte`, and that lies where a group of zeros has
  // it.
  bool has_bytes(int most_operand, int least) const {
    return most_operand - 127 + kNoByte <= least_byte &&
           (has_exact_zeros || least_byte <= least - 127 - kBelowAll);
  }
};

// An operand laid out for the kernels; `right` for a given width of panels. `depth` is a multiple of 16. Low
// parts only where a pass sees them.
struct Packed {
  Packed(bool is_left, bool has_low, int64_t count, int64_t num_ranges);

  AlignedArray<float> high, low;
  AlignedArray<int32_t> left_exponents;
  AlignedArray<int16_t> right_exponents;
  AlignedArray<int32_t> left_bytes;
  AlignedArray<int8_t> right_bytes;
  std::unique_ptr<Range[]> ranges;
};

// How an operand's values are read.
struct Reading {
  uint32_t mantissa;  // the bits of ten that count
  int lowest;         // float32's exponents up to this one are zero

  static Reading of(const Unit& unit, uint32_t mantissa) {
    return {mantissa, unit.has_short_exponent ? kShortOffset : 0};
  }
};

// Fills in what depends on the unit.
void prepare(Product& product, const Unit& unit, int first_pass, int last_pass);

// One row of one panel in integers.
void multiply_slowly(const Product& product, int64_t row, int64_t panel, int64_t panel_width);

// A source word, and the destination's bits, of a value that float32 holds, and back.
uint32_t word_of(bool has_short_exponent, float value);
float value_of_word(bool has_short_exponent, uint32_t word);
uint32_t dst_of(Dst dst, float value);
float value_of(Dst dst, uint32_t bits);

}  // namespace loom::numerics::tensix
