#include "torch/engine/half_products.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "numerics/kernels.h"

namespace loom::glue {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

struct ProductOp {
  std::string_view name;
  int64_t left_dims, right_dims;
  bool adds;  // beta times its first argument, after alpha times the product
};
constexpr std::array<ProductOp, 9> kOps = {{{"aten::addmm", 2, 2, true},
                                            {"aten::addmm_", 2, 2, true},
                                            {"aten::addmv", 2, 1, true},
                                            {"aten::addmv_", 2, 1, true},
                                            {"aten::baddbmm", 3, 3, true},
                                            {"aten::baddbmm_", 3, 3, true},
                                            {"aten::bmm", 3, 3, false},
                                            {"aten::mm", 2, 2, false},
                                            {"aten::mv", 2, 1, false}}};

constexpr double kWorkOfAThread = 1 << 18;  // multiplications

bool is_plain(const at::Tensor& tensor, int64_t dims) {
  return tensor.dim() == dims && tensor.numel() > 0 && tensor.layout() == c10::kStrided && !tensor.is_neg() &&
         tensor.is_cpu() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
}

const uint16_t* values_of(const at::Tensor& tensor) {
  return static_cast<const uint16_t*>(tensor.const_data_ptr());
}

// A batch of matrices in memory: what separates matrices, rows and columns.
struct Matrices {
  const uint16_t* values;
  int64_t batch_stride, row_stride, column_stride;

  Matrices transposed() const { return {values, batch_stride, column_stride, row_stride}; }
};

// Of one, two or three dimensions; a vector is a column.
Matrices matrices_of(const at::Tensor& tensor) {
  const bool is_vector = tensor.dim() == 1;
  return {values_of(tensor), tensor.dim() == 3 ? tensor.stride(0) : 0, tensor.stride(is_vector ? 0 : -2),
          is_vector ? 0 : tensor.stride(-1)};
}

struct Sizes {
  int64_t batches, rows, columns, depth;
};

void multiply(const Matrices& left, const Matrices& right, const Sizes& sizes, bool is_bfloat16,
              float* sums) {
  const numerics::Kernels& kernels = numerics::kernels();
  const int64_t rows = sizes.rows, columns = sizes.columns, depth = sizes.depth;
  const int64_t width = kernels.half_panel_width, panels = (columns + width - 1) / width;
  // Sizes of expanded operands may be huge.
  const double work = static_cast<double>(rows) * static_cast<double>(depth) * static_cast<double>(width);
  const auto grain = std::max<int64_t>(1, static_cast<int64_t>(kWorkOfAThread / work));
  at::parallel_for(0, sizes.batches * panels, grain, [&](int64_t begin, int64_t end) {
    // Only the pages that are used become resident.
    thread_local const std::unique_ptr<float[]> scratch(new float[numerics::kHalfScratch]);
    while (begin < end) {
      const int64_t batch = begin / panels, first = begin % panels;
      const int64_t last = std::min(first + end - begin, panels);
      const numerics::HalfProduct product{
          {left.values + batch * left.batch_stride, left.row_stride, left.column_stride},
          {right.values + batch * right.batch_stride, right.row_stride, right.column_stride},
          is_bfloat16,
          rows,
          columns,
          depth,
          sums + batch * rows * columns};
      kernels.half_product(product, first * width, std::min(last * width, columns), scratch.get());
      begin += last - first;
    }
  });
}

// The product of (batches of) matrices, or of a matrix and a vector; vectors run along the longer side of the
// result.
at::Tensor product_of(const at::Tensor& left, const at::Tensor& right, c10::IntArrayRef result_sizes) {
  const Matrices lefts = matrices_of(left), rights = matrices_of(right);
  const Sizes sizes{left.dim() == 3 ? left.size(0) : 1, left.size(-2), right.dim() == 1 ? 1 : right.size(-1),
                    left.size(-1)};
  const bool is_bfloat16 = left.scalar_type() == at::kBFloat16;
  const auto options = left.options().dtype(at::kFloat);
  if (sizes.rows <= sizes.columns) {
    at::Tensor sums = at::empty(result_sizes, options);
    multiply(lefts, rights, sizes, is_bfloat16, sums.mutable_data_ptr<float>());
    return sums;
  }
  const Sizes turned{sizes.batches, sizes.columns, sizes.rows, sizes.depth};
  const bool is_column = sizes.columns == 1;  // which is the same in memory
  at::Tensor sums = is_column ? at::empty(result_sizes, options)
                              : at::empty({turned.batches, turned.rows, turned.columns}, options);
  multiply(rights.transposed(), lefts.transposed(), turned, is_bfloat16, sums.mutable_data_ptr<float>());
  return is_column ? sums : sums.transpose(1, 2).contiguous().view(result_sizes);
}

}  // namespace

std::optional<at::Tensor> sums_of_halves(std::string_view op, Arguments arguments) {
  const auto* const found =
      std::find_if(kOps.begin(), kOps.end(), [&](const ProductOp& each) { return each.name == op; });
  if (found == kOps.end() || (found->adds && arguments.size() > 5 && !arguments[5].isTensor()))
    return std::nullopt;  // no product, or an overload that names a dtype
  const size_t first = found->adds ? 1 : 0;
  const at::Tensor &left = arguments[first].toTensor(), &right = arguments[first + 1].toTensor();
  if (!is_plain(left, found->left_dims) || !is_plain(right, found->right_dims)) return std::nullopt;
  const bool is_vector = found->right_dims == 1;
  if (left.scalar_type() != right.scalar_type()) return std::nullopt;
  if (left.size(-1) != right.size(is_vector ? 0 : -2)) return std::nullopt;
  if (left.dim() == 3 && left.size(0) != right.size(0)) return std::nullopt;
  std::vector<int64_t> sizes(left.sizes().begin(), left.sizes().end() - 1);
  if (!is_vector) sizes.push_back(right.size(-1));
  const bool is_in_place = op.back() == '_';
  if (found->adds) {
    const at::Tensor& own = arguments[0].toTensor();
    const bool fits = is_in_place ? own.sizes() == sizes : at::is_expandable_to(own.sizes(), sizes);
    if (!fits || arguments[3].toScalar().isComplex() || arguments[4].toScalar().isComplex())
      return std::nullopt;
  }
  if (!found->adds) return product_of(left, right, sizes);
  const auto beta = arguments[3].toScalar().to<double>(), alpha = arguments[4].toScalar().to<double>();
  // As in BLAS: what is multiplied by 0 is not read.
  at::Tensor sums =
      alpha == 0 ? at::zeros(sizes, left.options().dtype(at::kFloat)) : product_of(left, right, sizes);
  if (alpha != 0 && alpha != 1) sums.mul_(alpha);
  if (beta != 0) sums.add_(arguments[0].toTensor().to(at::kFloat), beta);
  return sums;
}

}  // namespace loom::glue
