#include "torch/numerics/silicon.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "numerics/tensix/packer.h"

namespace loom::numerics::glue {

void multiply_silicon(const SiliconOperands& matrices, const tensix::Unit& unit, int first_pass,
                      int last_pass, float* out) {
  const auto& best = kernels();
  const int64_t rows = matrices.rows, depth = matrices.padded_depth, columns = matrices.columns;
  if (rows == 0 || columns == 0 || depth == 0) return;
  const int64_t width = best.tensix_panel_width, num_panels = (columns + width - 1) / width;
  const int64_t left_stride = row_stride_of(depth);
  // The passes alternate weights' parts, and then those of activations.
  tensix::Packed left(true, last_pass > 2, rows * left_stride, rows);
  tensix::Packed right(false, last_pass > 1, num_panels * width * depth, num_panels);
  constexpr int64_t kGrain = 1 << 15;  // elements worth a thread
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / depth), [&](int64_t begin, int64_t end) {
    best.tensix_pack_left(tensix::Reading::of(unit, unit.mantissa_b), matrices.left, begin, end,
                          matrices.depth, depth, left);
  });
  at::parallel_for(0, num_panels, std::max<int64_t>(1, kGrain / (depth * width)),
                   [&](int64_t begin, int64_t end) {
                     best.tensix_pack_right(tensix::Reading::of(unit, unit.mantissa_a), matrices.right, begin,
                                            end, matrices.depth, columns, matrices.right_row_stride,
                                            matrices.right_column_stride, depth, right);
                   });
  tensix::Product product{};
  product.left_high = left.high.get();
  product.left_low = left.low.get();
  product.left_exponents = left.left_exponents.get();
  product.left_bytes = left.left_bytes.get();
  product.left_ranges = left.ranges.get();
  product.left_stride = left_stride;
  product.depth = depth;
  product.columns = columns;
  product.right_high = right.high.get();
  product.right_low = right.low.get();
  product.right_exponents = right.right_exponents.get();
  product.right_bytes = right.right_bytes.get();
  product.right_ranges = right.ranges.get();
  product.left = matrices.left;
  product.right = matrices.right;
  product.right_row_stride = matrices.right_row_stride;
  product.right_column_stride = matrices.right_column_stride;
  product.true_depth = matrices.depth;
  product.starts_small = matrices.starts_at_zero;
  product.out = out;
  product.out_stride = columns;
  tensix::prepare(product, unit, first_pass, last_pass);
  constexpr int64_t kProducts = 1 << 16;  // worth a thread
  at::parallel_for(0, rows, std::max<int64_t>(8, kProducts / std::max<int64_t>(1, depth * columns)),
                   [&](int64_t begin, int64_t end) { best.tensix_product(product, begin, end); });
}

int num_passes(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kLoFi:
      return 1;
    case Fidelity::kHiFi2:
      return 2;
    case Fidelity::kHiFi3:
      return 3;
    default:
      return 4;
  }
}

tensix::Unit unit_of(const Precision& precision, const Silicon& silicon) {
  const bool is_wide = precision.accumulate == Format::kFloat32;
  TORCH_CHECK_VALUE(is_wide || (precision.accumulate == Format::kFloat16) == silicon.has_short_exponent,
                    "matmul: sums in format ", static_cast<int64_t>(precision.accumulate),
                    " do not go with operands of the other exponent family");
  const auto dst = is_wide                      ? tensix::Dst::kFloat32
                   : silicon.has_short_exponent ? tensix::Dst::kFloat16
                                                : tensix::Dst::kFloat16_b;
  // A register of bfloat16 is read to 7 mantissa bits; float32 goes there as Tf32 only where sums are
  // float32.
  const uint32_t mantissa = dst == tensix::Dst::kFloat16_b ? 0x3F8 : 0x3FF;
  return {silicon.has_short_exponent, mantissa, mantissa, dst,
          silicon.is_blackhole ? tensix::Chip::kBlackhole : tensix::Chip::kWormhole};
}

namespace {

// Adds a block's sums to those that memory holds, by the packer.
void add_in_memory(const tensix::Unit& unit, float* sums, const float* block, int64_t count) {
  using tensix::kPackBlock;
  const tensix::PackMode mode{unit.is_wide() ? 0x100 : unit.has_short_exponent ? 0x11 : 0x55};
  at::parallel_for(0, (count + kPackBlock - 1) / kPackBlock, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint32_t bits[kPackBlock] = {}, old[kPackBlock] = {}, packed[kPackBlock], exponent;
      const int64_t first = i * kPackBlock, width = std::min(kPackBlock, count - first);
      for (int64_t j = 0; j < width; ++j) {
        bits[j] = tensix::dst_of(unit.dst, block[first + j]);
        old[j] = tensix::dst_of(unit.dst, sums[first + j]);
      }
      tensix::pack_block(mode, bits, packed, exponent);
      tensix::add_to_memory(mode, packed, old, packed);
      for (int64_t j = 0; j < width; ++j) sums[first + j] = tensix::value_of(unit.dst, packed[j]);
    }
  });
}

// A product in blocks of K. Between blocks, sums wait in memory: in float32, in the result's format, or added
// there.
void multiply_in_blocks(const SiliconOperands& whole, const tensix::Unit& unit, const Precision& precision,
                        const Silicon& silicon, int64_t out_format, const at::Tensor& out, float* to) {
  const int passes = num_passes(precision.fidelity);
  const int64_t block = silicon.block_tiles * kTile;
  if (block == 0 || whole.depth <= block) return multiply_silicon(whole, unit, 0, passes, to);
  const int64_t num_blocks = (whole.depth + block - 1) / block;
  const bool adds_in_l1 = silicon.adds_in_memory && num_blocks > 2;
  const at::Tensor left = at::empty({whole.rows, block}, out.options());
  const at::Tensor sums = at::zeros({whole.rows, whole.columns}, out.options());
  const int64_t count = whole.rows * whole.columns;
  for (int64_t i = 0; i < num_blocks; ++i) {
    const int64_t first = i * block, depth = std::min(block, whole.depth - first);
    float* rows = left.mutable_data_ptr<float>();
    for (int64_t row = 0; row < whole.rows; ++row)
      std::copy_n(whole.left + row * whole.depth + first, depth, rows + row * depth);
    SiliconOperands part = whole;
    part.left = rows;
    part.right = whole.right + first * whole.right_row_stride;
    part.depth = depth;
    part.padded_depth = ((depth + kTile - 1) / kTile) * kTile;
    part.starts_at_zero = i == 0;
    const bool is_last = i == num_blocks - 1;
    if (adds_in_l1 && !is_last) {
      std::fill_n(to, count, 0.0f);
      part.starts_at_zero = true;
      multiply_silicon(part, unit, 0, passes, to);
      add_in_memory(unit, sums.mutable_data_ptr<float>(), to, count);
      if (i == num_blocks - 2) std::copy_n(sums.const_data_ptr<float>(), count, to);
      continue;
    }
    multiply_silicon(part, unit, 0, passes, to);
    if (!is_last && !unit.is_wide() && out_format != kNone)
      convert(static_cast<Format>(out_format), Format::kInvalid, out, out);
  }
}

}  // namespace

at::Tensor silicon_matmul(const at::Tensor& self, const at::Tensor& other, const Precision& precision,
                          const Silicon& silicon, int64_t out_format) {
  const tensix::Unit unit = unit_of(precision, silicon);
  const at::Tensor first = as_floats(self), second = other.to(at::kFloat).resolve_neg();
  const at::Tensor left = self.dim() == 1 ? first.unsqueeze(0) : first;
  const at::Tensor right = other.dim() == 1 ? second.unsqueeze(1) : second;
  TORCH_CHECK(left.dim() >= 2 && right.dim() >= 2 && left.size(-1) == right.size(-2), "matmul: shapes ",
              self.sizes(), " and ", other.sizes(), " cannot be multiplied");
  const int64_t rows = left.size(-2), depth = left.size(-1), columns = right.size(-1);
  const auto batch =
      at::infer_size(left.sizes().slice(0, left.dim() - 2), right.sizes().slice(0, right.dim() - 2));
  const auto expanded = [&](const at::Tensor& tensor) {
    auto sizes = batch;
    sizes.insert(sizes.end(), {tensor.size(-2), tensor.size(-1)});
    return tensor.expand(sizes).contiguous().flatten(0, -3);
  };
  auto sizes = batch;
  sizes.insert(sizes.end(), {rows, columns});
  at::Tensor out = at::zeros(sizes, left.options());
  const auto multiply = [&](const float* from, const float* with, int64_t row_stride, int64_t column_stride,
                            int64_t num_rows, const at::Tensor& to) {
    const SiliconOperands operands{from,    with,       num_rows,      depth,
                                   columns, row_stride, column_stride, ((depth + kTile - 1) / kTile) * kTile,
                                   true};
    multiply_in_blocks(operands, unit, precision, silicon, out_format, to, to.mutable_data_ptr<float>());
  };
  if (depth != 0 && out.numel() != 0) {
    if (batch.empty() || (right.dim() == 2 && left.dim() > 2)) {
      // One matrix on the right: the batches are rows.
      multiply(left.const_data_ptr<float>(), right.const_data_ptr<float>(), right.stride(0), right.stride(1),
               left.numel() / depth, out);
    } else {
      const at::Tensor l = expanded(left), r = expanded(right), flat = out.flatten(0, -3);
      for (int64_t i = 0; i < l.size(0); ++i) {
        multiply(l.const_data_ptr<float>() + i * rows * depth,
                 r.const_data_ptr<float>() + i * depth * columns, columns, 1, rows, flat[i]);
      }
    }
  }
  if (other.dim() == 1) out = out.squeeze(-1);
  return self.dim() == 1 ? out.squeeze(other.dim() == 1 ? -1 : -2) : out;
}

}  // namespace loom::numerics::glue
