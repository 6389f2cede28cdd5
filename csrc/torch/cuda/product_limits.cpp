#include "torch/cuda/product_limits.h"

#include <optional>

namespace loom::glue {

namespace {

using at::Tensor;
using Type = c10::ScalarType;

constexpr int64_t kScaledTile = 16, kIntegerTile = 8, kIntegerRows = 16;

// What a call of `_scaled_mm` or `_scaled_mm_v2` has of its own.
struct ScaledProduct {
  const Tensor &left, &right;
  std::optional<Tensor> bias;
  Type type;  // of the result

  ScaledProduct(c10::ArrayRef<c10::IValue> arguments, const Tensor* result)
      : left(arguments[0].toTensor()), right(arguments[1].toTensor()) {
    // The second signature has lists of scales, and their recipes, before the bias.
    const bool is_second = arguments[2].isTensorList();
    const c10::IValue &given = arguments[is_second ? 8 : 4], &wanted = arguments[is_second ? 9 : 6];
    if (given.isTensor() && given.toTensor().defined()) bias = given.toTensor();
    type = result != nullptr ? result->scalar_type()
           : wanted.isInt()  ? wanted.toScalarType()
                             : left.scalar_type();
  }
};

void check_bias(const ScaledProduct& call) {
  const Type bias = call.bias->scalar_type(), result = call.type;
  TORCH_CHECK_VALUE(result != Type::Float, "Bias is not supported when out_dtype is set to Float32");
  TORCH_CHECK_VALUE(bias == Type::BFloat16 || bias == Type::Half, "Bias must be BFloat16 or Half, but got ",
                    bias);
  TORCH_CHECK_VALUE(result != Type::BFloat16 || bias == Type::BFloat16, "Bias must be BFloat16 to compute ",
                    result, " output, but got ", bias);
  TORCH_CHECK_VALUE(result != Type::Half || bias == Type::Half, "Bias must be Float16 to compute ", result,
                    " output, but got ", bias);
}

// Whether cuBLASLt writes such a result: of two e4m3 matrices no e5m2.
bool is_result_of(const ScaledProduct& call) {
  switch (call.type) {
    case Type::BFloat16:
    case Type::Half:
    case Type::Float:
    case Type::Float8_e4m3fn:
      return true;
    case Type::Float8_e5m2:
      return call.left.scalar_type() == Type::Float8_e5m2 || call.right.scalar_type() == Type::Float8_e5m2;
    default:
      return false;
  }
}

}  // namespace

void check_integer_product(c10::ArrayRef<c10::IValue> arguments) {
  const Tensor &self = arguments[0].toTensor(), &mat2 = arguments[1].toTensor();
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(0) > kIntegerRows, "self.size(0) needs to be greater than ", kIntegerRows,
              ", but got ", self.size(0));
  TORCH_CHECK(self.size(1) > 0 && self.size(1) % kIntegerTile == 0,
              "self.size(1) needs to be greater than 0 and a multiple of ", kIntegerTile, ", but got ",
              self.size(1));
  TORCH_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1),
              " and ", mat2.size(0));
  TORCH_CHECK(mat2.size(1) > 0 && mat2.size(1) % kIntegerTile == 0,
              "mat2.size(1) needs to be greater than 0 and a multiple of ", kIntegerTile, ", but got ",
              mat2.size(1));
}

void check_scaled_product(c10::ArrayRef<c10::IValue> arguments, const Tensor* result,
                          const runtime::Chip& chip) {
  const int capability = chip.capability_major * 10 + chip.capability_minor;
  TORCH_CHECK_NOT_IMPLEMENTED(capability >= 89,
                              "torch._scaled_mm is only supported on CUDA devices with compute capability >= "
                              "9.0 or 8.9, or ROCm MI300+");
  const ScaledProduct call(arguments, result);
  const Tensor &left = call.left, &right = call.right;
  if (left.dim() != 2 || right.dim() != 2 || left.size(1) != right.size(0)) return;  // refused by the engine
  TORCH_CHECK_VALUE(left.size(1) % kScaledTile == 0,
                    "Expected trailing dimension of mat1 to be divisible by ", kScaledTile,
                    " but got mat1 shape: (", left.size(0), "x", left.size(1), ").");
  TORCH_CHECK_VALUE(right.size(1) % kScaledTile == 0, "mat2 shape (", right.size(0), "x", right.size(1),
                    ") must be divisible by ", kScaledTile);
  TORCH_CHECK_VALUE(left.scalar_type() != Type::Float8_e5m2 || right.scalar_type() != Type::Float8_e5m2,
                    "Multiplication of two Float8_e5m2 matrices is not supported");
  if (call.bias.has_value()) check_bias(call);
  if (left.numel() == 0 || right.numel() == 0) return;
  const bool is_left_by_row = left.is_contiguous() || left.stride(0) != 1;
  TORCH_CHECK(capability >= 100 || (is_left_by_row && right.stride(0) == 1),
              "Only multiplication of row-major and column-major matrices is supported by cuBLASLt");
  TORCH_CHECK(is_result_of(call),
              "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic`: no "
              "kernel for ",
              left.scalar_type(), " times ", right.scalar_type(), " with a result of ", call.type);
}

}  // namespace loom::glue
