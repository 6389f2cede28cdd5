#include "torch/numerics/strict.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <memory>

#include "numerics/scalar.h"

namespace loom::numerics::glue {

namespace {

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

struct Parts {
  double high, low;
};

// High and low part of an operand; an infinity or NaN is all in the high part.
Parts split(float value, uint32_t kept_bits, uint32_t high_bits) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) >= 0x7F800000u) return {value, 0.0};
  const double high = std::bit_cast<float>(bits & high_bits);
  return {high, static_cast<double>(std::bit_cast<float>(bits & kept_bits)) - high};
}

// Float64 copies of an operand's parts, as StrictProduct wants them.
struct Packed {
  explicit Packed(int64_t count)
      : high(new double[static_cast<size_t>(count)]), low(new double[static_cast<size_t>(count)]) {}
  std::unique_ptr<double[]> high, low;
  bool is_finite = true;
};

void pack_left(const float* left, int64_t rows, int64_t depth, Packed& packed) {
  for (int64_t i = 0; i < rows * depth; ++i) {
    const Parts parts = split(left[i], 0xFFFFE000, 0xFFFE0000);
    packed.high[static_cast<size_t>(i)] = parts.high;
    packed.low[static_cast<size_t>(i)] = parts.low;
    packed.is_finite &= std::isfinite(left[i]);
  }
}

void pack_right(const float* right, int64_t depth, int64_t columns, int64_t width, Packed& packed) {
  for (int64_t first = 0; first < columns; first += width) {
    double* high = packed.high.get() + first * depth;
    double* low = packed.low.get() + first * depth;
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < width; ++i, ++high, ++low) {
        const float value = first + i < columns ? right[k * columns + first + i] : 0.0f;
        const Parts parts = split(value, 0xFFFFC000, 0xFFF80000);
        *high = parts.high;
        *low = parts.low;
        packed.is_finite &= std::isfinite(value);
      }
    }
  }
}

void multiply(const float* left, const float* right, float* out, int64_t rows, int64_t depth, int64_t columns,
              const Precision& precision) {
  const auto& best = kernels();
  const int64_t width = best.panel_width, num_panels = (columns + width - 1) / width;
  Packed packed_left(rows * depth), packed_right(num_panels * width * depth);
  pack_left(left, rows, depth, packed_left);
  pack_right(right, depth, columns, width, packed_right);
  const StrictProduct product{packed_left.high.get(),
                              packed_left.low.get(),
                              packed_right.high.get(),
                              packed_right.low.get(),
                              rows,
                              depth,
                              columns,
                              num_passes(precision.fidelity),
                              accumulate_of(precision.accumulate),
                              out,
                              columns};
  const bool is_finite = packed_left.is_finite && packed_right.is_finite;
  constexpr int64_t kGrain = 1 << 16;  // products worth a thread
  at::parallel_for(0, rows, std::max<int64_t>(8, kGrain / std::max<int64_t>(1, depth * columns)),
                   [&](int64_t begin, int64_t end) {
                     if (is_finite) {
                       best.strict_product(product, begin, end);
                     } else {
                       scalar::strict_product(product, width, begin, end);
                     }
                   });
}

}  // namespace

at::Tensor strict_matmul(const at::Tensor& self, const at::Tensor& other, const Precision& precision) {
  const at::Tensor left = self.dim() == 1 ? self.unsqueeze(0) : self;
  const at::Tensor right = other.dim() == 1 ? other.unsqueeze(1) : other;
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
  at::Tensor out = at::empty(sizes, left.options());
  if (batch.empty() || (right.dim() == 2 && left.dim() > 2)) {
    // One matrix on the right: the batches are rows.
    const int64_t all_rows = left.numel() / std::max<int64_t>(1, depth);
    const at::Tensor l = left.contiguous(), r = right.contiguous();
    if (depth == 0) {
      out.zero_();
    } else if (out.numel() != 0) {
      multiply(l.const_data_ptr<float>(), r.const_data_ptr<float>(), out.mutable_data_ptr<float>(), all_rows,
               depth, columns, precision);
    }
  } else if (out.numel() != 0) {
    const at::Tensor l = expanded(left), r = expanded(right);
    const int64_t count = l.size(0);
    for (int64_t i = 0; i < count; ++i) {
      multiply(l.const_data_ptr<float>() + i * rows * depth, r.const_data_ptr<float>() + i * depth * columns,
               out.mutable_data_ptr<float>() + i * rows * columns, rows, depth, columns, precision);
    }
  }
  if (other.dim() == 1) out = out.squeeze(-1);
  return self.dim() == 1 ? out.squeeze(other.dim() == 1 ? -1 : -2) : out;
}

}  // namespace loom::numerics::glue
