// Products as GPUs' matrix instructions compute them.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "numerics/instructions.h"
#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

void share(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, count, grain, body);
}

// [M, K] and [K, N] or batches of them, whose values the operands' formats hold; float32 sums. K goes in
// `split` parts that are added in float32; within a part the sum moves to a float32 accumulator after every
// `promotion` products (0: never).
at::Tensor tensor_core_matmul(const at::Tensor& self, const at::Tensor& other, int64_t self_format,
                              int64_t other_format, bool has_half_sums, int64_t fraction_bits,
                              int64_t kept_bits, int64_t step, int64_t instruction_depth, int64_t promotion,
                              int64_t split) {
  constexpr const char* kOp = "tensor_core_matmul";
  TORCH_CHECK_VALUE(0 <= self_format && self_format <= 4 && 0 <= other_format && other_format <= 4, kOp,
                    ": formats ", self_format, " and ", other_format, "; allowed: 0 to 4");
  TORCH_CHECK_VALUE(
      2 <= step && step <= 32 && step % 2 == 0 && instruction_depth >= step && instruction_depth % step == 0,
      kOp, ": steps of ", step, " in instructions of ", instruction_depth,
      "; allowed: even steps of up to 32 that divide the instruction");
  TORCH_CHECK_VALUE(1 <= fraction_bits && fraction_bits <= 25 && 1 <= kept_bits && kept_bits <= 23, kOp, ": ",
                    fraction_bits, " fraction bits and ", kept_bits, " kept; allowed: 1 to 25, and 1 to 23");
  TORCH_CHECK_VALUE(promotion >= 0 && promotion % instruction_depth == 0, kOp, ": promotion after ",
                    promotion, " products; allowed: 0, or multiples of ", instruction_depth);
  TORCH_CHECK_VALUE(split >= 1, kOp, ": ", split, " parts of K; allowed: from 1 on");
  const at::Tensor left = self.to(at::kFloat).contiguous().resolve_neg();
  const at::Tensor right = other.to(at::kFloat).resolve_neg();
  const bool is_batched = left.dim() == 3;
  TORCH_CHECK(left.dim() == right.dim() && (left.dim() == 2 || is_batched) &&
                  left.size(-1) == right.size(-2) && (!is_batched || left.size(0) == right.size(0)),
              kOp, ": shapes ", self.sizes(), " and ", other.sizes(), " cannot be multiplied");
  const tensor_core::Rule rule{static_cast<tensor_core::Operand>(self_format),
                               static_cast<tensor_core::Operand>(other_format),
                               has_half_sums,
                               static_cast<int>(fraction_bits),
                               static_cast<int>(kept_bits),
                               static_cast<int>(step)};
  const int64_t batches = is_batched ? left.size(0) : 1, rows = left.size(-2), depth = left.size(-1),
                columns = right.size(-1);
  at::Tensor out = is_batched ? at::zeros({batches, rows, columns}, left.options())
                              : at::zeros({rows, columns}, left.options());
  if (out.numel() == 0 || depth == 0) return out;
  // Parts of K end where lines of 128 bytes do that a library loads at once, of few where instructions do.
  const bool is_float8 = rule.a == tensor_core::Operand::kE4M3 || rule.a == tensor_core::Operand::kE5M2;
  const int64_t line = is_float8 ? 128 : rule.a == tensor_core::Operand::kTf32 ? 32 : 64;
  const int64_t grain = depth >= split * line && line % instruction_depth == 0 ? line : instruction_depth;
  const int64_t part = ((depth + split - 1) / split + grain - 1) / grain * grain;
  const int64_t unit = promotion == 0 ? part : std::min(part, promotion);
  const int64_t size = rows * columns;
  const bool is_whole = unit >= depth;
  std::vector<float> piece, part_sum, block;
  if (!is_whole) {
    piece.resize(static_cast<size_t>(size));
    part_sum.resize(static_cast<size_t>(size));
    block.resize(static_cast<size_t>(rows * unit));
  }
  for (int64_t batch = 0; batch < batches; ++batch) {
    const float* from = left.const_data_ptr<float>() + batch * rows * depth;
    const float* with = right.const_data_ptr<float>() + (is_batched ? batch * right.stride(0) : 0);
    float* to = out.mutable_data_ptr<float>() + batch * size;
    tensor_core::Matrices operands{from, with, rows, depth, columns, right.stride(-2), right.stride(-1)};
    if (is_whole) {
      tensor_core::multiply(operands, rule, instruction_depth, to, share);
      continue;
    }
    for (int64_t first_part = 0; first_part < depth; first_part += part) {
      std::fill(part_sum.begin(), part_sum.end(), 0.0f);
      const int64_t part_end = std::min(depth, first_part + part);
      for (int64_t first = first_part; first < part_end; first += unit) {
        operands.depth = std::min(unit, part_end - first);
        for (int64_t row = 0; row < rows; ++row)
          std::copy_n(from + row * depth + first, operands.depth, block.data() + row * operands.depth);
        operands.left = block.data();
        operands.right = with + first * right.stride(-2);
        std::fill(piece.begin(), piece.end(), 0.0f);
        tensor_core::multiply(operands, rule, instruction_depth, piece.data(), share);
        for (size_t i = 0; i < piece.size(); ++i) part_sum[i] += piece[i];
      }
      for (int64_t i = 0; i < size; ++i) to[i] += part_sum[static_cast<size_t>(i)];
    }
  }
  return out;
}

at::Tensor tensor_core_matmul_meta(const at::Tensor& self, const at::Tensor& other, int64_t, int64_t, bool,
                                   int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) {
  auto sizes = self.sym_sizes().vec();
  sizes.back() = other.sym_size(-1);
  return at::empty_symint(sizes, self.options().dtype(at::kFloat));
}

}  // namespace

void define_tensor_cores(torch::Library& m) {
  m.def(
      "tensor_core_matmul(Tensor self, Tensor other, int self_format, int other_format, bool has_half_sums, "
      "int "
      "fraction_bits, int kept_bits, int step, int instruction_depth, int promotion=0, int split=1) -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
}

void register_tensor_cores() {
  loom::glue::library(loom::glue::kEngineOps, kLibrary).impl("tensor_core_matmul", &tensor_core_matmul);
  loom::glue::library(c10::DispatchKey::Meta, kLibrary).impl("tensor_core_matmul", &tensor_core_matmul_meta);
}

}  // namespace loom::numerics::glue
