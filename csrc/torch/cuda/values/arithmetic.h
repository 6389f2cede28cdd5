// Sums, products and roots where CUDA's kernels round otherwise than the CPU's.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda: BinaryAddSubKernel.cu, PointwiseOpsKernel.cu,
// ForeachFunctors.cuh, ForeachPointwiseOp.cu), which nvcc compiles with products fused into sums; compared
// with an H200 and an H100 (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

enum class Sum : uint8_t { kAdded, kSubtracted, kSubtractedFrom };
enum class Term : uint8_t { kProduct, kQuotient };

// (self, other, alpha), and an out.
template <Sum kSum>
std::vector<at::Tensor> add_scaled(c10::ArrayRef<c10::IValue> arguments);
// (self, tensor1, tensor2, value), and an out.
template <Term kTerm, bool kIsInPlace>
std::vector<at::Tensor> add_term(c10::ArrayRef<c10::IValue> arguments);
// (self), and an out.
std::vector<at::Tensor> exact_root(c10::ArrayRef<c10::IValue> arguments);

// The same of each tensor of a list.
template <Sum kSum, bool kIsInPlace>
std::vector<at::Tensor> add_scaled_lists(c10::ArrayRef<c10::IValue> arguments);
template <Term kTerm, bool kIsInPlace>
std::vector<at::Tensor> add_terms(c10::ArrayRef<c10::IValue> arguments);
template <bool kIsInPlace>
std::vector<at::Tensor> exact_roots(c10::ArrayRef<c10::IValue> arguments);
// (self, number or numbers)
template <bool kIsInPlace>
std::vector<at::Tensor> multiply_lists(c10::ArrayRef<c10::IValue> arguments);
template <bool kIsInPlace>
std::vector<at::Tensor> divide_lists(c10::ArrayRef<c10::IValue> arguments);

// What a division by a number multiplies by: rounded as the dtype is computed in.
double rounded_reciprocal(double divisor, c10::ScalarType dtype);

// Whether a sum has another value on CUDA than on the CPU, by its operands.
bool is_scaled_as_cuda(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);

}  // namespace loom::glue
