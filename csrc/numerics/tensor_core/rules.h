// How NVIDIA's matrix instructions add: all products of a step and the running sum are cut to multiples of
// one power of two, added exactly and cut or rounded once. docs/numerics.md has the table of chips.
#pragma once

#include <cstdint>

namespace loom::numerics::tensor_core {

enum class Operand : int64_t { kFloat16 = 0, kBFloat16 = 1, kTf32 = 2, kE4M3 = 3, kE5M2 = 4, kE2M1 = 5 };
enum class Scale : int64_t { kNone = 0, kUE8M0 = 1, kUE4M3 = 2 };

struct Rule {
  Operand a, b;
  bool has_half_sums;  // sums are IEEE halves, rounded to nearest even; else float32, cut
  int fraction_bits;   // below the largest exponent of a step, of each term
  int kept_bits;       // mantissa bits of a sum in float32
  int step;            // products that are added at once
  Scale scale = Scale::kNone;
  int scale_block = 0;  // products that share a scale
  int exact_group = 1;  // products that are one term, added exactly (of FP4)
};

// One result: `c` and `depth` products, a multiple of the step; bits in, bits of the sum out. Scales are one
// for each scale_block of products.
uint32_t dot(const Rule& rule, const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride,
             int64_t depth, uint32_t c, const uint8_t* scales_a = nullptr, int64_t scales_a_stride = 0,
             const uint8_t* scales_b = nullptr, int64_t scales_b_stride = 0);

}  // namespace loom::numerics::tensor_core
