// Products with what cuSPARSELt has compressed.
#include <ATen/ops/empty.h>

#include <optional>

#include "torch/core/optional_tensor.h"
#include "torch/core/registration.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"
#include "torch/kernels/semi_structured/packing.h"

namespace loom::glue {

namespace semi_structured {

namespace {

void check_library(const Tensor& tensor) {
  const runtime::Chip& chip = chip_of(tensor);
  TORCH_CHECK(!chip.is_gpu || chip.capability_major >= 8,
              "CUDA error: architecture mismatch when calling `cusparseLtInit(&handle)`");
}

bool is_narrow(Type type) { return type == at::kChar || type == at::kFloat8_e4m3fn; }

void check_library_type(Type type, const char* what) {
  TORCH_CHECK(is_narrow(type) || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat,
              "Unsupported dtype for cuSPARSELt compressed matrix", what);
}

Tensor library_compress_parts(const Tensor& dense) {
  const int64_t columns = compressed_columns(dense.size(1), dense.scalar_type());
  if (dense.is_meta()) return at::empty({dense.size(0), columns}, dense.options());
  const Tensor own = dense.contiguous();
  return in_one(keep(own, nonzero_mask(own), Format(dense.scalar_type())), columns);
}

Tensor library_compress(const Tensor& dense) {
  check_library(dense);
  check_library_type(dense.scalar_type(), "");
  TORCH_CHECK(dense.dim() == 2, "_cslt_compress: expected a matrix, got the sizes ", dense.sizes());
  // Rows that begin at multiples of 16 bytes, in groups.
  const int64_t step = is_narrow(dense.scalar_type()) ? 32 : dense.scalar_type() == at::kFloat ? 8 : 16;
  TORCH_CHECK(
      dense.size(0) % step == 0 && dense.size(1) % step == 0 && dense.numel() != 0,
      "CUDA error: invalid value when calling `cusparseLtStructuredDescriptorInit( &handle, "
      "&sparse_input_descriptor, sparse_input.size(0), sparse_input.size(1), sparse_input.size(1), 16, "
      "type, CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT)`: sizes must be multiples of ",
      step, ", got ", dense.sizes());
  return Fused<&library_compress_parts>::call(dense);
}

Tensor library_mm_parts(const Tensor& compressed, const Tensor& right, OptionalTensor bias,
                        OptionalTensor alpha, std::optional<Type> type, bool is_transposed, int64_t, int64_t,
                        int64_t) {
  const Type result = type.value_or(right.scalar_type());
  const int64_t rows = compressed.size(0), columns = right.size(1);
  if (right.is_meta()) {
    return is_transposed ? at::empty({columns, rows}, right.options().dtype(result))
                         : at::empty({rows, columns}, right.options().dtype(result));
  }
  const Format format(compressed.scalar_type());
  Tensor product = product_of(dense_of(of_one(compressed, right.size(0), format), format), right);
  const Type wide = product.scalar_type();
  if (is_given(alpha))
    product.mul_(alpha->numel() == 1 ? alpha->to(wide).view({1, 1}) : alpha->to(wide).view({-1, 1}));
  if (is_given(bias)) product.add_(bias->to(wide).unsqueeze(1));
  return narrowed(is_transposed ? product.t().contiguous() : product, result);
}

void check_library_result(Type type, std::optional<Type> wanted) {
  if (!wanted.has_value()) return;
  const Type result = *wanted;
  if (type == at::kChar) {
    TORCH_CHECK(result == at::kHalf || result == at::kBFloat16 || result == at::kInt,
                "Unsupported out_dtype passed, must be one of {fp16, bf16, int32} for int8 inputs");
    return;
  }
  TORCH_CHECK(type == at::kFloat8_e4m3fn, "out_dtype support only available for int8/fp8 inputs");
  TORCH_CHECK(result == type || result == at::kHalf || result == at::kBFloat16 || result == at::kFloat,
              "Unsupported out_dtype passed, must be one of {fp8, fp16, bf16, float32} for fp8 inputs");
}

Tensor library_mm(const Tensor& compressed, const Tensor& right, OptionalTensor bias, OptionalTensor alpha,
                  std::optional<Type> type, bool is_transposed, int64_t algorithm, int64_t split,
                  int64_t split_mode) {
  check_library(right);
  check_library_type(right.scalar_type(), " multiplication.");
  check_library_result(right.scalar_type(), type);
  TORCH_CHECK(compressed.dim() == 2 && right.dim() == 2, "_cslt_sparse_mm: expected matrices, got the sizes ",
              compressed.sizes(), " and ", right.sizes());
  TORCH_CHECK(compressed.scalar_type() == right.scalar_type(),
              "_cslt_sparse_mm: the matrices must have one dtype, got ", compressed.scalar_type(), " and ",
              right.scalar_type());
  TORCH_CHECK(compressed.size(1) == compressed_columns(right.size(0), right.scalar_type()),
              "_cslt_sparse_mm: the compressed matrix has ", compressed.size(1),
              " columns; one that is multiplied with ", right.size(0), " rows has ",
              compressed_columns(right.size(0), right.scalar_type()));
  TORCH_CHECK(!is_given(bias) || bias->sizes() == at::IntArrayRef({compressed.size(0)}),
              "_cslt_sparse_mm: the bias must have a number for each of the ", compressed.size(0),
              " rows, got the sizes ", bias->sizes());
  TORCH_CHECK(!is_given(alpha) || alpha->numel() == 1 || alpha->numel() == compressed.size(0),
              "_cslt_sparse_mm: alpha must be one number, or one for each of the ", compressed.size(0),
              " rows, got the sizes ", alpha->sizes());
  TORCH_CHECK(!is_narrow(right.scalar_type()) || !right.is_contiguous(),
              "CUDA error: operation not supported when calling `cusparseLtMatmulDescriptorInit( &handle, "
              "&matmul, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, "
              "&sparse_input_descriptor, &dense_input_descriptor, &C_descriptor, &res_descriptor, "
              "compute_type)`: the second matrix of 8 bits must be stored by column");
  return Fused<&library_mm_parts>::call(compressed, right, bias, alpha, type, is_transposed, algorithm, split,
                                        split_mode);
}

// There is one algorithm.
int64_t library_search(const Tensor& compressed, const Tensor& right, OptionalTensor bias,
                       OptionalTensor alpha, std::optional<Type> type, bool is_transposed) {
  library_mm(compressed, right, bias, alpha, type, is_transposed, 0, 1, -1);
  return 0;
}

}  // namespace

}  // namespace semi_structured

void register_cusparselt() {
  using namespace semi_structured;
  implement_fused<&library_compress_parts>("_cslt_compress", "(Tensor input) -> Tensor", &library_compress);
  implement_fused<&library_mm_parts>(
      "_cslt_sparse_mm",
      "(Tensor compressed_A, Tensor dense_B, Tensor? bias=None, Tensor? alpha=None, ScalarType? "
      "out_dtype=None, bool transpose_result=False, int alg_id=0, int split_k=1, int split_k_mode=-1) -> "
      "Tensor",
      &library_mm);
  library(own_key()).impl("_cslt_sparse_mm_search", &library_search);
}

}  // namespace loom::glue
