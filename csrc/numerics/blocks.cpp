#include "numerics/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "numerics/instructions.h"

namespace loom::numerics::tensor_core {

namespace {

// Programs of a launch run beside each other already.
void run_alone(int64_t count, int64_t, const std::function<void(int64_t, int64_t)>& body) { body(0, count); }

// To TF32's 10 bits: to nearest, halves away from zero (PTX: cvt.rna.tf32).
float rounded_to_tf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_finite = (bits & 0x7F800000) != 0x7F800000;
  return is_finite ? std::bit_cast<float>((bits + 0x1000) & 0xFFFFE000) : value;
}

struct Split {
  std::vector<float> kept, rest;

  Split(const float* values, int64_t count)
      : kept(static_cast<size_t>(count)), rest(static_cast<size_t>(count)) {
    for (size_t i = 0; i < kept.size(); ++i) {
      kept[i] = rounded_to_tf32(values[i]);
      rest[i] = values[i] - kept[i];
    }
  }
};

// A thread of a warp holds four neighbours of FP8 in a register; an instruction of halves takes two of them,
// the next one the other two.
constexpr int64_t kRegister = 4, kRegistersDepth = 32;
int64_t place_of_half(int64_t k) {
  const int64_t first = k / kRegistersDepth * kRegistersDepth, within = k % kRegistersDepth;
  const int64_t instruction = within / (kRegistersDepth / 2), pair = within % (kRegistersDepth / 2) / 2;
  return first + pair * kRegister + instruction * 2 + within % 2;
}

std::vector<float> in_order_of_registers(const float* values, int64_t rows, int64_t columns, bool is_left) {
  const int64_t depth = is_left ? columns : rows;
  std::vector<float> result(static_cast<size_t>(rows * columns));
  float* to = result.data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t k = is_left ? column : row;
      const int64_t from = k / kRegistersDepth == depth / kRegistersDepth ? k : place_of_half(k);
      *to++ = is_left ? values[row * columns + from] : values[from * columns + column];
    }
  }
  return result;
}

}  // namespace

bool BlockRules::multiply(const Blocks& blocks, float* out, const float* sum, const float* left,
                          const float* right) const {
  constexpr auto kTf32 = static_cast<int32_t>(Operand::kTf32);
  const bool is_three = blocks.left == kThreeTf32;
  // What Triton takes for a group of four warps.
  const bool is_group = blocks.threads % 128 == 0 && blocks.height % 64 == 0 && blocks.width % 8 == 0;
  const auto found = rules_.find({is_three ? kTf32 : blocks.left, is_three ? kTf32 : blocks.right, is_group});
  if (found == rules_.end()) return false;
  const BlockRule& instruction = found->second;
  const int64_t height = blocks.height, width = blocks.width, depth = blocks.depth;
  const auto count = static_cast<size_t>(height * width);
  const auto add_product = [&](const float* a, const float* b, int64_t length, float* to) {
    tensor_core::multiply({a, b, height, length, width, width, 1}, instruction.rule,
                          instruction.instruction_depth, to, run_alone);
  };
  if (is_three) {
    const Split a(left, height * depth), b(right, depth * width);
    std::vector<float> total(count, 0.0f);
    add_product(a.rest.data(), b.kept.data(), depth, total.data());
    add_product(a.kept.data(), b.rest.data(), depth, total.data());
    // Of infinity less what was kept of it: Triton's compiler puts zero there.
    for (float& value : total) value = std::isnan(value) ? 0.0f : value;
    add_product(a.kept.data(), b.kept.data(), depth, total.data());
    for (size_t i = 0; i < count; ++i) out[i] = sum[i] + total[i];
    return true;
  }
  if (instruction.is_through_halves) {
    const auto a = in_order_of_registers(left, height, depth, true);
    const auto b = in_order_of_registers(right, depth, width, false);
    std::copy_n(sum, count, out);
    add_product(a.data(), b.data(), depth, out);
    return true;
  }
  const bool is_narrow = instruction.rule.kept_bits < 23;
  if (!is_group || !is_narrow || blocks.longest_chain > depth) {
    std::copy_n(sum, count, out);
    add_product(left, right, depth, out);
    return true;
  }
  // Sums of few bits go to float32 in between.
  const int64_t unit = instruction.instruction_depth;
  const int64_t chain = std::max(unit, (blocks.longest_chain + unit - 1) / unit * unit);
  std::vector<float> part(count), some;
  std::copy_n(sum, count, out);
  for (int64_t first = 0; first < depth; first += chain) {
    const int64_t length = std::min(chain, depth - first);
    some.resize(static_cast<size_t>(height * length));
    for (int64_t row = 0; row < height; ++row)
      std::copy_n(left + row * depth + first, length, some.data() + row * length);
    std::fill(part.begin(), part.end(), 0.0f);
    add_product(some.data(), right + first * width, length, part.data());
    for (size_t i = 0; i < count; ++i) out[i] += part[i];
  }
  return true;
}

}  // namespace loom::numerics::tensor_core
