#include "numerics/instructions.h"

#include <algorithm>
#include <bit>

#include "numerics/kernels.h"

namespace loom::numerics::tensor_core {

namespace {

// Zeros, and numbers whose units int32 and float32 hold beside those of products.
bool are_easy(const float* sums, int64_t count) {
  constexpr int kLeast = -60, kMost = 100;
  bool result = true;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(sums[i]) & 0x7FFFFFFF;
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    result &= magnitude == 0 || (kLeast <= exponent && exponent <= kMost);
  }
  return result;
}

}  // namespace

void multiply(const Matrices& operands, const Rule& rule, int64_t instruction_depth, float* out,
              Shared share) {
  const auto& best = kernels();
  const int64_t rows = operands.rows, columns = operands.columns;
  const int64_t depth = (operands.depth + instruction_depth - 1) / instruction_depth * instruction_depth;
  const int64_t width = best.core_panel_width, num_panels = (columns + width - 1) / width;
  Packed left(true, rows * row_stride_of(depth), rows), right(false, num_panels * width * depth, num_panels);
  best.core_pack_left(Reading::of(rule.a), operands.left, 0, rows, operands.depth, depth, left);
  share(num_panels, 4, [&](int64_t begin, int64_t end) {
    best.core_pack_right(Reading::of(rule.b), operands.right, begin, end, operands.depth, columns,
                         operands.right_row_stride, operands.right_column_stride, depth, right);
  });
  Product product{};
  product.left_values = left.values.get();
  product.left_exponents = left.left_exponents.get();
  product.left_ranges = left.ranges.get();
  product.left_stride = row_stride_of(depth);
  product.right_values = right.values.get();
  product.right_exponents = right.right_exponents.get();
  product.right_ranges = right.ranges.get();
  product.left = operands.left;
  product.right = operands.right;
  product.right_row_stride = operands.right_row_stride;
  product.right_column_stride = operands.right_column_stride;
  product.true_depth = operands.depth;
  product.depth = depth;
  product.columns = columns;
  product.rule = rule;
  product.out = out;
  product.out_stride = columns;
  product.starts_easily = are_easy(out, rows * columns);
  constexpr int64_t kProducts = 1 << 16;  // worth a thread
  share(rows, std::max<int64_t>(2, kProducts / std::max<int64_t>(1, depth * columns)),
        [&](int64_t begin, int64_t end) { best.core_product(product, begin, end); });
}

}  // namespace loom::numerics::tensor_core
