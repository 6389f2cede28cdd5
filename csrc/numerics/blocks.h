// Blocks as kernels of Triton multiply them on a GPU: which instruction its compiler takes for them, and what
// it does to the operands before. Compared with an H100, bit for bit (tests/kernels/test_card_blocks.py).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "numerics/tensor_core/rules.h"

namespace loom::numerics::tensor_core {

// As torch_loom/kernels/emission/cpp/kernel.h has it.
struct Blocks {
  int32_t left, right;  // an Operand, or kThreeTf32
  int32_t height, width, depth;
  int32_t threads;        // of the program
  int64_t longest_chain;  // products of FP8 after which a sum goes to float32
};
static_assert(sizeof(Blocks) == 32);

// Float32 as three products of TF32: of what the first rounding left, and of what it kept. None of Operand's
// numbers.
inline constexpr int32_t kThreeTf32 = 6;

struct BlockRule {
  Rule rule;
  int instruction_depth;
  bool is_through_halves;  // the instruction takes halves: FP8 is converted, in the order of its registers
};

class BlockRules {
 public:
  // `is_group`: of instructions that a group of warps issues together (wgmma, tcgen05.mma).
  void set(int32_t left, int32_t right, bool is_group, const BlockRule& rule) {
    rules_[{left, right, is_group}] = rule;
  }

  // out = sum + left * right, each in rows; false where no instruction multiplies these formats.
  bool multiply(const Blocks& blocks, float* out, const float* sum, const float* left,
                const float* right) const;

 private:
  std::map<std::tuple<int32_t, int32_t, bool>, BlockRule> rules_;
};

}  // namespace loom::numerics::tensor_core
