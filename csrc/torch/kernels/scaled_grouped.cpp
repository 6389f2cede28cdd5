// Products of groups of matrices, as experts of a mixture compute them: one command. Of float8, with scales
// by row, the engine has no kernel; of wider dtypes it has one, which trusts the offsets. The checks and
// their words are CUDA's.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "torch/core/device.h"
#include "torch/core/optional_tensor.h"
#include "torch/core/torch_version.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Type = c10::ScalarType;

constexpr int64_t kTile = 16, kAlignment = 16, kMostGroups = 1024;
constexpr int64_t kByRow = 1, kBlocksOf16 = 2, kBlocksOf32 = 3, kWhole = 0;  // at::blas::ScalingType

// Whether the last two dimensions are stored by column.
bool is_by_column(const Tensor& matrix) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const int64_t row_step = matrix.stride(-2), column_step = matrix.stride(-1);
  const int64_t element = matrix.element_size();
  TORCH_CHECK(matrix.storage_offset() * element % kAlignment == 0,
              "expected data_ptr to be aligned to 16 bytes");
  const bool by_column = row_step == 1 && column_step >= std::max<int64_t>(1, rows);
  TORCH_CHECK(by_column || (column_step == 1 && row_step >= std::max<int64_t>(1, columns)),
              "Invalid strides/sizes, got ", matrix.strides(), " for strides and ", matrix.sizes(),
              " for sizes");
  TORCH_CHECK((by_column ? column_step : row_step) * element % kAlignment == 0,
              "strides should be multiple of 16 bytes");
  return by_column;
}

void check_chip(const Tensor& tensor) {
  const runtime::Chip& chip = devices().device(tensor.device().index()).chip();
  TORCH_CHECK_VALUE(!chip.is_gpu || chip.capability_major == 9 || chip.capability_major == 10,
                    "torch._scaled_grouped_mm is only supported on CUDA devices with compute capability = "
                    "[9.0, 10.0], or ROCm MI300+");
}

void check_matrices(const Tensor& left, const Tensor& right) {
  const auto is_matrix = [](const Tensor& tensor) { return tensor.dim() == 2 || tensor.dim() == 3; };
  TORCH_CHECK_VALUE(is_matrix(left), "mat_a has to be 2 or 3d");
  TORCH_CHECK_VALUE(is_matrix(right), "mat_b has to be 2 or 3d");
  TORCH_CHECK_VALUE(!is_by_column(left), "Expected mat1 to not be transposed");
  TORCH_CHECK_VALUE(is_by_column(right), "Expected mat2 to be transposed");
  TORCH_CHECK_VALUE((left.dim() == 2 && right.dim() == 2) || left.size(-1) == right.size(-2),
                    "contraction dimension of mat_a and mat_b must match");
  TORCH_CHECK_VALUE(left.size(-1) % kTile == 0,
                    "Expected trailing dimension of mat_a to be divisible by 16 but got mat1 shape: (",
                    left.sizes(), ").");
  TORCH_CHECK_VALUE(right.size(-2) % kTile == 0 && right.size(-1) % kTile == 0,
                    "Expected mat_b shape to be divisible by 16 but got mat_b shape: (", right.sizes(), ").");
}

void check_offsets(const Tensor& left, const Tensor& right, OptionalTensor offsets) {
  TORCH_CHECK_VALUE(is_given(offsets) == (left.dim() == 2 || right.dim() == 2),
                    "Have to provide offsets if there is a 2d matrix");
  if (!is_given(offsets)) return;
  TORCH_CHECK_VALUE(offsets->dim() == 1, "offs has to be 1D");
  TORCH_CHECK_VALUE(offsets->scalar_type() == at::kInt, "Offsets have to be int32");
}

// Scales of the dimension `dim` of a matrix; `copies`: one for each group that cuts the other dimension.
void check_scale(const Tensor& matrix, const Tensor& scale, int64_t dim, int64_t copies) {
  if (matrix.dim() == 2) {
    TORCH_CHECK(scale.dim() == 1, "scale must be a 1D tensor, but got ", scale.dim(), "D, arg ", dim);
    TORCH_CHECK(scale.is_contiguous(), "scale must be contiguous for arg ", dim);
    TORCH_CHECK(scale.size(0) == matrix.size(dim) * copies, "scale must have the same length as mat for arg ",
                dim);
    return;
  }
  TORCH_CHECK(scale.dim() == 2, "scale must be a 2D tensor, but got ", scale.dim(), "D for arg ", dim);
  TORCH_CHECK(scale.stride(1) == 1, "scale must be contiguous in the last dimension for arg ", dim);
  TORCH_CHECK(scale.size(0) == matrix.size(0), "scale must have the same batch dimension as mat for arg ",
              dim);
  TORCH_CHECK(scale.size(1) == matrix.size(1 + dim),
              "scale must have the same first dimension as mat for arg ", dim);
}

void check_scales(const Tensor& left, const Tensor& right, const Tensor& left_scale,
                  const Tensor& right_scale, OptionalTensor offsets) {
  const int64_t copies = left.dim() == 2 && right.dim() == 2 ? offsets->size(0) : 1;
  check_scale(left, left_scale, 0, copies);
  check_scale(right, right_scale, 1, copies);
}

void check_groups(const Tensor& left, const Tensor& right, OptionalTensor offsets) {
  const bool is_left_3d = left.dim() == 3, is_right_3d = right.dim() == 3;
  if (is_left_3d && is_right_3d) {
    TORCH_CHECK(left.size(0) == right.size(0), "batched dimension has to match");
  } else if (is_left_3d || is_right_3d) {
    TORCH_CHECK(offsets->size(0) == (is_left_3d ? left : right).size(0), "matrix batch sizes have to match");
  }
  const int64_t groups = is_left_3d ? left.size(0) : is_right_3d ? right.size(0) : offsets->size(0);
  TORCH_CHECK(groups < kMostGroups, "Can't process more than 1024 groups");
}

void check_result(std::optional<Type> type) {
  TORCH_CHECK_VALUE(type.value_or(at::kBFloat16) == at::kBFloat16,
                    "Only bf16 high precision output types are supported for grouped gemm");
}

void check_types(const Tensor& left, const Tensor& right) {
  for (const Type type : {left.scalar_type(), right.scalar_type()}) {
    // CUDA names the first matrix of both.
    TORCH_CHECK_VALUE(type == at::kFloat8_e4m3fn, "Expected mat_a to be Float8_e4m3 matrix got ", type);
  }
}

// The result, with rows that begin at multiples of 16 bytes.
Tensor empty_result(const Tensor& left, const Tensor& right, OptionalTensor offsets,
                    Type type = at::kBFloat16) {
  const int64_t aligned = kAlignment / static_cast<int64_t>(c10::elementSize(type));
  const int64_t rows = left.size(-2), columns = right.size(-1);
  const int64_t step = (columns + aligned - 1) / aligned * aligned;
  const at::TensorOptions options = left.options().dtype(type);
  if (left.dim() != right.dim()) return at::empty_strided({rows, columns}, {step, 1}, options);
  const int64_t groups = left.dim() == 2 ? offsets->size(0) : left.size(0);
  return at::empty_strided({groups, rows, columns}, {rows * step, step, 1}, options);
}

// Multiplies in float32 and rounds once. An empty sum is zero.
void multiply(const Tensor& left, const Tensor& right, const Tensor& row_scale, const Tensor& column_scale,
              Tensor result) {
  if (result.numel() == 0) return;
  Tensor product = at::mm(left.to(at::kFloat), right.to(at::kFloat));
  product.mul_(row_scale.unsqueeze(1)).mul_(column_scale.unsqueeze(0));
  result.copy_(product);
}

// What CUDA's kernel asserts of the offsets, where the groups end.
void check_ends(const Tensor& left, const Tensor& right, const Tensor& ends) {
  const bool cuts_depth = left.dim() == 2 && right.dim() == 2;
  const int64_t size = cuts_depth ? left.size(1) : right.dim() == 3 ? left.size(0) : right.size(1);
  const int* const end = ends.const_data_ptr<int>();
  for (int64_t group = 0, start = 0; group < ends.size(0); start = end[group++]) {
    const int64_t stop = end[group];
    TORCH_CHECK(stop >= start, "expected gemm dimension to be greater or equal 0");
    TORCH_CHECK(stop <= size, "expected offset to be less than tensor size");
    TORCH_CHECK(!cuts_depth || (stop - start) * left.element_size() % kAlignment == 0,
                "expected input tensor dynamic dimension byte size to be non-negative multiple of 16");
  }
}

Tensor wide_parts(const Tensor& left, const Tensor& right, OptionalTensor offsets, OptionalTensor bias,
                  std::optional<Type> type) {
  if (!left.is_meta()) {
    const bool has_ends = is_given(offsets) && offsets->dim() == 1 && offsets->scalar_type() == at::kInt;
    if (has_ends) check_ends(left, right, offsets->contiguous());
    return at::_grouped_mm(left, right, offsets, bias, type);
  }
  // PyTorch's shape function refuses all but bfloat16, and lays out rows without a gap.
  if (left.scalar_type() == at::kBFloat16) at::_grouped_mm(left, right, offsets, bias, type);
  TORCH_CHECK_VALUE(left.scalar_type() == right.scalar_type() && at::isFloatingType(left.scalar_type()),
                    "_grouped_mm: operands must be of one floating dtype, got ", left.scalar_type(), " and ",
                    right.scalar_type());
  TORCH_CHECK_VALUE((left.dim() == 2 || left.dim() == 3) && (right.dim() == 2 || right.dim() == 3) &&
                        left.size(-1) == right.size(-2),
                    "_grouped_mm: operands must be matrices or lists of them that can be multiplied, got ",
                    left.sizes(), " and ", right.sizes());
  TORCH_CHECK_VALUE(!is_given(bias), "Bias not supported yet");
  check_offsets(left, right, offsets);
  check_groups(left, right, offsets);
  return empty_result(left, right, offsets, type.value_or(left.scalar_type()));
}

Tensor grouped_parts(const Tensor& left, const Tensor& right, const Tensor& left_scale,
                     const Tensor& right_scale, OptionalTensor offsets) {
  Tensor result = empty_result(left, right, offsets);
  if (result.is_meta()) return result;
  if (!is_given(offsets)) {
    for (int64_t group = 0; group < left.size(0); ++group) {
      multiply(left[group], right[group], left_scale[group], right_scale[group], result[group]);
    }
    return result;
  }
  const Tensor ends = offsets->contiguous();
  const int* const end = ends.const_data_ptr<int>();
  const int64_t rows = left.size(-2), columns = right.size(-1);
  check_ends(left, right, ends);
  for (int64_t group = 0, start = 0; group < ends.size(0); start = end[group++]) {
    const int64_t stop = end[group];
    if (right.dim() == 3) {
      multiply(left.slice(0, start, stop), right[group], left_scale.slice(0, start, stop), right_scale[group],
               result.slice(0, start, stop));
    } else if (left.dim() == 3) {
      multiply(left[group], right.slice(1, start, stop), left_scale[group], right_scale.slice(0, start, stop),
               result.slice(1, start, stop));
    } else {
      multiply(left.slice(1, start, stop), right.slice(0, start, stop),
               left_scale.slice(0, group * rows, (group + 1) * rows),
               right_scale.slice(0, group * columns, (group + 1) * columns), result[group]);
    }
  }
  return result;
}

Tensor first_parts(const Tensor& left, const Tensor& right, const Tensor& left_scale,
                   const Tensor& right_scale, OptionalTensor offsets, OptionalTensor, OptionalTensor,
                   std::optional<Type>, bool) {
  return grouped_parts(left, right, left_scale, right_scale, offsets);
}

Tensor second_parts(const Tensor& left, const Tensor& right, ScaleList left_scales, at::IntArrayRef,
                    at::IntArrayRef, ScaleList right_scales, at::IntArrayRef, at::IntArrayRef,
                    OptionalTensor offsets, OptionalTensor, std::optional<Type>, at::IntArrayRef, bool) {
  return grouped_parts(left, right, *left_scales.begin(), *right_scales.begin(), offsets);
}

// Kernels for scales of blocks come with FBGEMM, which a build of PyTorch may lack; the words are of such
// one.
[[noreturn]] void refuse_float8_blocks() {
  C10_THROW_ERROR(NotImplementedError, "mxfp8_mxfp8 grouped gemm requires compile with USE_FBGEMM_GENAI");
}

Tensor first(const Tensor& left, const Tensor& right, const Tensor& left_scale, const Tensor& right_scale,
             OptionalTensor offsets, OptionalTensor bias, OptionalTensor result_scale,
             std::optional<Type> type, bool is_fast) {
  check_chip(left);
  check_matrices(left, right);
  TORCH_CHECK_VALUE(!is_given(bias), "Bias not supported yet");
  TORCH_CHECK_VALUE(!is_given(result_scale), "Scale result not supported yet");
  check_offsets(left, right, offsets);
  const Type scale = left_scale.scalar_type();
  TORCH_CHECK_VALUE(
      (scale == at::kFloat || scale == at::kFloat8_e8m0fnu) && right_scale.scalar_type() == scale,
      "For FP8 tensorwise and rowwise, both scales must both be float32 tensors. For MXFP8, scales must both "
      "be float8_e8m0fnu tensors.");
  if (scale == at::kFloat8_e8m0fnu) refuse_float8_blocks();
  check_scales(left, right, left_scale, right_scale, offsets);
  check_result(type);
  check_groups(left, right, offsets);
  check_types(left, right);
  return Fused<&first_parts>::call(left, right, left_scale, right_scale, offsets, bias, result_scale, type,
                                   is_fast);
}

bool is_recipe(at::TensorList scales, at::IntArrayRef recipe, Type type, int64_t kind) {
  return scales.size() == 1 && recipe.size() == 1 && recipe[0] == kind && scales[0].scalar_type() == type;
}

bool is_float4_recipe(at::TensorList scales, at::IntArrayRef recipe) {
  if (is_recipe(scales, recipe, at::kFloat8_e8m0fnu, kBlocksOf32)) return true;
  return scales.size() == 2 && recipe.size() == 2 && recipe[0] == kBlocksOf16 && recipe[1] == kWhole &&
         scales[0].scalar_type() == at::kFloat8_e4m3fn && scales[1].scalar_type() == at::kFloat;
}

// Finds the kernel that CUDA would call, and refuses those of FBGEMM.
void check_recipes(const Tensor& left, const Tensor& right, at::TensorList left_scales,
                   at::IntArrayRef left_recipe, at::TensorList right_scales, at::IntArrayRef right_recipe) {
  const auto both = [&](Type type, int64_t kind) {
    return is_recipe(left_scales, left_recipe, type, kind) &&
           is_recipe(right_scales, right_recipe, type, kind);
  };
  const Type left_type = left.scalar_type(), right_type = right.scalar_type();
  if (c10::isFloat8Type(left_type) && c10::isFloat8Type(right_type) && both(at::kFloat, kByRow)) return;
  if (left_type == at::kFloat8_e4m3fn && right_type == left_type && both(at::kFloat8_e8m0fnu, kBlocksOf32)) {
    refuse_float8_blocks();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      left_type != at::kFloat4_e2m1fn_x2 || right_type != left_type ||
          !is_float4_recipe(left_scales, left_recipe) || !is_float4_recipe(right_scales, right_recipe),
      "nvfp4 grouped gemm is not supported without USE_FBGEMM_GENAI, and only for CUDA");
  TORCH_CHECK_VALUE(false, "No gemm implementation was found");
}

Tensor second(const Tensor& left, const Tensor& right, ScaleList left_scales, at::IntArrayRef left_recipe,
              at::IntArrayRef left_swizzle, ScaleList right_scales, at::IntArrayRef right_recipe,
              at::IntArrayRef right_swizzle, OptionalTensor offsets, OptionalTensor bias,
              std::optional<Type> type, at::IntArrayRef contraction, bool is_fast) {
  check_chip(left);
  check_matrices(left, right);
  TORCH_CHECK_VALUE(contraction.empty() || (left.dim() == 2 && right.dim() == 2) ||
                        (contraction.size() == 2 && contraction[0] == -1 && contraction[1] == -2),
                    "Curently contraction dims must be (-1, -2) only");
  TORCH_CHECK_VALUE(!is_given(bias), "Bias not supported yet");
  check_offsets(left, right, offsets);
  check_result(type);
  check_groups(left, right, offsets);
  const std::vector<Tensor> left_list(left_scales.begin(), left_scales.end()),
      right_list(right_scales.begin(), right_scales.end());
  check_recipes(left, right, left_list, left_recipe, right_list, right_recipe);
  check_scales(left, right, left_list[0], right_list[0], offsets);
  check_types(left, right);
  return Fused<&second_parts>::call(left, right, left_scales, left_recipe, left_swizzle, right_scales,
                                    right_recipe, right_swizzle, offsets, bias, type, contraction, is_fast);
}

}  // namespace

void register_scaled_grouped() {
  implement_fused<&wide_parts>("_grouped_mm",
                               "(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? "
                               "out_dtype=None) -> Tensor");
  implement_fused<&first_parts>(
      "_scaled_grouped_mm",
      "(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? offs=None, Tensor? bias=None, "
      "Tensor? scale_result=None, ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor",
      &first);
  implement_fused<&second_parts>(
      "_scaled_grouped_mm_v2",
      "(Tensor self, Tensor mat2, Tensor[] scale_a, int[] recipe_a, int[] swizzle_a, Tensor[] scale_b, "
      "int[] recipe_b, int[] swizzle_b, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None, "
      "int[] contraction_dim=[], bool use_fast_accum=False) -> Tensor",
      &second);
}

}  // namespace loom::glue
