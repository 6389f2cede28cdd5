// Linear layers: the gradients in one call, which PyTorch has for backends that do the layer in one op; and,
// under the names that CUDA's kernels have, weights of four bits, and products in a wider dtype than their
// operands'.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <array>
#include <string>
#include <tuple>

#include "torch/core/registration.h"
#include "torch/engine/int4.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;

// input: (…, in); grad_output: (…, out); weight: (out, in). A gradient that is not asked for is undefined.
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad_output,
                                                   const Tensor& weight, std::array<bool, 3> output_mask) {
  TORCH_CHECK(weight.dim() == 2 && input.dim() > 0 && grad_output.dim() == input.dim() &&
                  input.size(-1) == weight.size(1) && grad_output.size(-1) == weight.size(0),
              "linear_backward: input ", input.sizes(), " and grad_output ", grad_output.sizes(),
              " do not fit a weight of the shape ", weight.sizes());
  const Tensor grad_rows = grad_output.reshape({-1, weight.size(0)});
  std::tuple<Tensor, Tensor, Tensor> grads;
  if (output_mask[0]) std::get<0>(grads) = at::mm(grad_rows, weight).reshape(input.sizes());
  if (output_mask[1]) std::get<1>(grads) = at::mm(grad_rows.t(), input.reshape({-1, weight.size(1)}));
  if (output_mask[2]) std::get<2>(grads) = at::sum(grad_rows, {0});
  return grads;
}

// weight: uint8 (n, k / 2), the even column in the high bits. Packed: int32 (n / 8, k / (tiles * 16), 32,
// tiles / 2), as CUDA's; what stands where in it is the engine's.
Tensor pack_int4(const Tensor& weight, int64_t inner_k_tiles) {
  TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kByte,
              "_convert_weight_to_int4pack: expected a weight of uint8 and two dimensions, got ",
              weight.scalar_type(), " ", weight.sizes());
  TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8,
              "_convert_weight_to_int4pack: innerKTiles must be 2, 4 or 8, got ", inner_k_tiles);
  const int64_t n = weight.size(0), k = weight.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (inner_k_tiles * 16) == 0, "_convert_weight_to_int4pack: a weight of ", n,
              " rows and ", k, " columns is none of multiples of 8 and ", inner_k_tiles * 16);
  const Tensor high = at::bitwise_right_shift(weight, at::Scalar(4)),
               low = at::bitwise_and(weight, at::Scalar(15));
  const Tensor numbers = at::stack({high, low}, -1).view({n, k}).to(at::kInt);
  return engine_pack_int4(numbers, inner_k_tiles)
      .view(at::kInt)
      .view({n / 8, k / (inner_k_tiles * 16), 32, inner_k_tiles / 2});
}

// input: bfloat16 (m, k); scales_and_zeros: (k / group_size, n, 2).
Tensor int4_mm(const Tensor& input, const Tensor& packed, int64_t group_size,
               const Tensor& scales_and_zeros) {
  TORCH_CHECK(input.dim() == 2 && packed.dim() == 4 && packed.scalar_type() == at::kInt,
              "_weight_int4pack_mm: expected an input of two dimensions and a weight that "
              "_convert_weight_to_int4pack made, got ",
              input.sizes(), " and ", packed.scalar_type(), " ", packed.sizes());
  const int64_t n = packed.size(0) * 8, k = packed.size(1) * 16 * packed.size(3) * 2;
  TORCH_CHECK(input.size(1) == k, "_weight_int4pack_mm: an input of ", input.size(1),
              " columns does not fit a weight of ", k);
  const Tensor weight = packed.contiguous().view({n, k / 8}).view(at::kByte);
  return engine_int4_mm(input, weight, group_size, scales_and_zeros);
}

// In PyTorch's words for CUDA.
void check_product(const Tensor& left, const Tensor& right, at::ScalarType out_dtype) {
  TORCH_CHECK(left.scalar_type() == right.scalar_type(),
              "expected both matrices to have the same dtype, got ", left.scalar_type(), " and ",
              right.scalar_type());
  const bool is_half = left.scalar_type() == at::kHalf || left.scalar_type() == at::kBFloat16;
  TORCH_CHECK(out_dtype == left.scalar_type() || (out_dtype == at::kFloat && is_half),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

void check_sum(const Tensor& self, const Tensor& left, at::ScalarType out_dtype) {
  TORCH_CHECK(self.scalar_type() == out_dtype || self.scalar_type() == left.scalar_type(),
              "self dtype must match either out_dtype or mat1 dtype");
}

Tensor mm_parts(const Tensor& self, const Tensor& mat2, at::ScalarType out_dtype) {
  check_product(self, mat2, out_dtype);
  return at::mm(self.to(out_dtype), mat2.to(out_dtype));
}

Tensor bmm_parts(const Tensor& self, const Tensor& mat2, at::ScalarType out_dtype) {
  check_product(self, mat2, out_dtype);
  return at::bmm(self.to(out_dtype), mat2.to(out_dtype));
}

Tensor addmm_parts(const Tensor& self, const Tensor& mat1, const Tensor& mat2, at::ScalarType out_dtype,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  check_product(mat1, mat2, out_dtype);
  check_sum(self, mat1, out_dtype);
  return at::addmm(self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}

Tensor baddbmm_parts(const Tensor& self, const Tensor& batch1, const Tensor& batch2, at::ScalarType out_dtype,
                     const at::Scalar& beta, const at::Scalar& alpha) {
  check_product(batch1, batch2, out_dtype);
  check_sum(self, batch1, out_dtype);
  return at::baddbmm(self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

// The variant with `out=`, of which the result is copied.
template <auto parts>
struct Out;
template <typename... Arguments, Tensor (*parts)(Arguments...)>
struct Out<parts> {
  static Tensor& call(Arguments... arguments, Tensor& out) {
    const Tensor result = Fused<parts>::call(std::forward<Arguments>(arguments)...);
    TORCH_CHECK(out.scalar_type() == result.scalar_type(), "expected out to have the dtype ",
                result.scalar_type(), ", got ", out.scalar_type());
    at::native::resize_output(out, result.sizes());
    return out.copy_(result);
  }
};

template <auto parts>
void register_product(const std::string& name, const std::string& signature) {
  implement_fused<parts>(name + ".dtype", signature);
  library(own_key()).impl((name + ".dtype_out").c_str(), &Out<parts>::call);
}

}  // namespace

void register_linear() {
  torch::Library& m = library(own_key());
  register_product<&mm_parts>("mm", "(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor");
  register_product<&bmm_parts>("bmm", "(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor");
  register_product<&addmm_parts>("addmm",
                                 "(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, Scalar "
                                 "beta=1, Scalar alpha=1) -> Tensor");
  register_product<&baddbmm_parts>("baddbmm",
                                   "(Tensor self, Tensor batch1, Tensor batch2, ScalarType out_dtype, *, "
                                   "Scalar beta=1, Scalar alpha=1) -> Tensor");
  m.impl("linear_backward", linear_backward);
  m.impl("_convert_weight_to_int4pack", pack_int4);
  m.impl("_weight_int4pack_mm", int4_mm);
}

}  // namespace loom::glue
