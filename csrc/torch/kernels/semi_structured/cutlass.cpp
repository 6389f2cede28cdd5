// Products with what CUTLASS's kernels have compressed.
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include <optional>
#include <tuple>
#include <vector>

#include "torch/core/optional_tensor.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"
#include "torch/kernels/semi_structured/packing.h"

namespace loom::glue {

namespace semi_structured {

namespace {

void check_ampere(const Tensor& tensor, const char* name) {
  const runtime::Chip& chip = chip_of(tensor);
  TORCH_CHECK(!chip.is_gpu || chip.capability_major == 8, name,
              " : Supported only on GPUs with compute capability 8.x");
}

void check_strides(const char* op, const char* name, const Tensor& matrix) {
  TORCH_CHECK(matrix.dim() == 2, op, " : Expected ", name, " argument to be 2D tensor, got ", matrix.dim(),
              " dims");
  TORCH_CHECK(matrix.stride(0) == 1 || matrix.stride(1) == 1, op, " : Invalid strides for ", name,
              " argument: row stride = ", matrix.stride(0), ", column stride = ", matrix.stride(1));
}

void check_codes(const char* op, const Tensor& kept, const Tensor& meta) {
  const Format format(kept.scalar_type());
  TORCH_CHECK(meta.scalar_type() == format.meta, op, " : Expected meta datatype ", format.meta, ", but got ",
              meta.scalar_type());
  TORCH_CHECK(kept.size(0) % format.row_step() == 0 && kept.size(1) % format.per_number == 0 &&
                  meta.numel() * format.per_number == kept.numel() * 2,
              op, " : the sparse matrix must have a multiple of ", format.row_step(), " rows and of ",
              format.per_number, " columns, and meta a number for ", format.per_number / 2,
              " of its elements, got ", kept.sizes(), " and ", meta.sizes());
}

void check_product(const Tensor& kept, const Tensor& meta, const Tensor& right, OptionalTensor bias,
                   std::optional<Type> wanted) {
  constexpr const char* kOp = "sparse_semi_structured_mad_op";
  check_ampere(right, kOp);
  const Type type = right.scalar_type(), result = wanted.value_or(type);
  TORCH_CHECK(type == at::kChar || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, kOp,
              " : The mat2 datatype ", type, " is not supported");
  TORCH_CHECK(kept.scalar_type() == type, kOp, " : Expected mat1 datatype ", type, ", but got ",
              kept.scalar_type());
  const bool has_bias = is_given(bias) && bias->numel() != 0;
  TORCH_CHECK(!has_bias || bias->scalar_type() == result, kOp, " : Expected input datatype ", result,
              ", but got ", bias->scalar_type());
  check_strides(kOp, "mat1", kept);
  check_strides(kOp, "mat2", right);
  TORCH_CHECK(!has_bias || bias->dim() == 1, kOp, " : Expected input argument to be 1D tensor, got ",
              bias->dim(), " dims");
  TORCH_CHECK(kept.size(1) == right.size(0) / 2, kOp, " : Expected mat1 argument to have ", right.size(0) / 2,
              " columns, but got ", kept.size(1));
  TORCH_CHECK(!has_bias || bias->size(0) == kept.size(0), kOp, " : Expected input argument to have ",
              kept.size(0), " elements, but got ", bias->size(0));
  TORCH_CHECK(result == type || (type == at::kChar && result == at::kInt), kOp, " : a product of ", type,
              " has no result of ", result);
  const bool is_by_row = kept.stride(1) == 1, is_right_by_row = right.stride(1) == 1;
  const auto layout = [](bool by_row) { return by_row ? "row-major" : "column_major"; };
  TORCH_CHECK(type != at::kChar || (is_by_row && !is_right_by_row),
              "spgemm_cutlass_dispatch_layouts_dispatch_layouts: Combination of ", layout(is_by_row), " and ",
              layout(is_right_by_row), " layouts for input tensors is not supported");
  check_codes(kOp, kept, meta);
  // Rows of the operands and of the result begin at multiples of 16 bytes.
  const auto is_aligned = [](int64_t size, Type of) {
    return size * static_cast<int64_t>(c10::elementSize(of)) % 16 == 0;
  };
  TORCH_CHECK(
      is_aligned(is_right_by_row ? right.size(1) : right.size(0), type) && is_aligned(right.size(1), result),
      "spgemm_cutlass : CUTLASS error: Error Misaligned Operand");
}

Tensor cutlass_parts(const Tensor& kept, const Tensor& meta, const Tensor& right, OptionalTensor bias,
                     double alpha, double beta, Type type) {
  if (right.is_meta()) return at::empty({kept.size(0), right.size(1)}, right.options().dtype(type));
  const Format format(kept.scalar_type());
  const Tensor left = dense_of({kept.contiguous(), restored(meta, kept.size(0), format)}, format);
  Tensor product = product_of(left, right).mul_(alpha);
  if (is_given(bias) && bias->numel() != 0) {
    product.add_(bias->to(product.scalar_type()).unsqueeze(1), beta);
  }
  return narrowed(product, type);
}

Tensor sparse_mm_parts(const Tensor& kept, const Tensor& meta, const Tensor& right,
                       std::optional<Type> type) {
  return cutlass_parts(kept, meta, right, {}, 1, 0, type.value_or(right.scalar_type()));
}

Tensor mm(const Tensor& kept, const Tensor& meta, const Tensor& right, std::optional<Type> type) {
  check_product(kept, meta, right, {}, type);
  return Fused<&sparse_mm_parts>::call(kept, meta, right, type);
}

Tensor sparse_addmm_parts(const Tensor& input, const Tensor& kept, const Tensor& meta, const Tensor& right,
                          const c10::Scalar& alpha, const c10::Scalar& beta, std::optional<Type> type) {
  return cutlass_parts(kept, meta, right, input, alpha.toDouble(), beta.toDouble(),
                       type.value_or(right.scalar_type()));
}

Tensor addmm(const Tensor& input, const Tensor& kept, const Tensor& meta, const Tensor& right,
             const c10::Scalar& alpha, const c10::Scalar& beta, std::optional<Type> type) {
  check_product(kept, meta, right, input, type);
  return Fused<&sparse_addmm_parts>::call(input, kept, meta, right, alpha, beta, type);
}

// All rows of the input, as columns.
Tensor columns_of(const Tensor& input) { return input.reshape({-1, input.size(-1)}).t(); }

Tensor linear_parts(const Tensor& input, const Tensor& weight, const Tensor& meta, OptionalTensor bias,
                    std::optional<c10::string_view> activation, std::optional<Type> type) {
  const Tensor product =
      cutlass_parts(weight, meta, columns_of(input), bias, 1, 1, type.value_or(input.scalar_type())).t();
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  const std::string_view kind = activation.value_or("none");
  return (kind == "relu" ? at::relu(product) : kind == "silu" ? at::silu(product) : product).reshape(sizes);
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& meta, OptionalTensor bias,
              std::optional<c10::string_view> activation, std::optional<Type> type) {
  constexpr const char* kOp = "_sparse_semi_structured_linear";
  TORCH_WARN_ONCE(
      "_sparse_semi_structured_linear is deprecated and will be removed in a future PyTorch release.  Please "
      "use _sparse_semi_structured_mm/_sparse_semi_structured_addmm instead.");
  check_ampere(input, kOp);
  const std::string_view kind = activation.value_or("none");
  TORCH_CHECK(kind == "none" || kind == "relu" || kind == "silu", kOp, " : The activation ", kind,
              " is not supported");
  TORCH_CHECK(kind != "silu" || !c10::isIntegralType(input.scalar_type(), false), kOp, " : The activation ",
              kind, " is not supported for given input tensors");
  TORCH_CHECK(input.dim() > 0, kOp, " : Expected input argument to have dimensions, got a number");
  check_product(weight, meta, columns_of(input), bias, type);
  return Fused<&linear_parts>::call(input, weight, meta, bias, activation, type);
}

std::tuple<Tensor, Tensor> compress_parts(const Tensor& dense) {
  const Format format(dense.scalar_type());
  const int64_t rows = dense.size(0), columns = dense.size(1);
  if (dense.is_meta()) {
    return {at::empty({rows, columns / 2}, dense.options()),
            at::empty({rows, columns / format.per_number}, dense.options().dtype(format.meta))};
  }
  const Tensor mask = nonzero_mask(dense);
  TORCH_CHECK(mask.view({-1, format.group}).sum(1).eq(format.group / 2).all().item<bool>(),
              "_to_sparse_semi_structured: dense argument does not match ", format.group == 4 ? "2:4" : "1:2",
              "sparsity pattern");
  const Kept kept = keep(dense.contiguous(), mask, format);
  return {kept.values, ordered(kept.codes, format)};
}

std::tuple<Tensor, Tensor> compress(const Tensor& dense) {
  constexpr const char* kOp = "_to_sparse_semi_structured";
  TORCH_CHECK(dense.dim() == 2, kOp, " : Expected dense argument to be 2D tensor, got ", dense.dim(),
              " dims");
  const Type type = dense.scalar_type();
  TORCH_CHECK(type == at::kChar || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, kOp,
              ": Invalid dense argument datatype ", type, " encountered");
  const Format format(type);
  TORCH_CHECK(dense.size(0) % format.row_step() == 0, kOp,
              ": Number of rows of dense matrix must be divisible by ", format.row_step(), ", but it is ",
              dense.size(0));
  // Numbers are stored in pairs.
  const int64_t step = dense.size(1) % format.per_number == 0 ? 2 * format.per_number : format.per_number;
  TORCH_CHECK(dense.size(1) % step == 0, kOp, ": Number of columns of dense matrix must be divisible by ",
              step, ", but it is ", dense.size(1));
  return Fused<&compress_parts>::call(dense);
}

}  // namespace

}  // namespace semi_structured

void register_cutlass() {
  using namespace semi_structured;
  implement_fused<&sparse_mm_parts>(
      "_sparse_semi_structured_mm",
      "(Tensor mat1, Tensor mat1_meta, Tensor mat2, *, ScalarType? out_dtype=None) -> Tensor", &mm);
  implement_fused<&sparse_addmm_parts>(
      "_sparse_semi_structured_addmm",
      "(Tensor input, Tensor mat1, Tensor mat1_meta, Tensor mat2, *, Scalar alpha=1, "
      "Scalar beta=1, ScalarType? out_dtype=None) -> Tensor",
      &addmm);
  implement_fused<&linear_parts>("_sparse_semi_structured_linear",
                                 "(Tensor input, Tensor weight, Tensor meta, *, Tensor? bias=None, str? "
                                 "activation=None, ScalarType? out_dtype=None) -> Tensor",
                                 &linear);
  implement_fused<&compress_parts>("_to_sparse_semi_structured", "(Tensor dense) -> (Tensor, Tensor)",
                                   &compress);
}

}  // namespace loom::glue
