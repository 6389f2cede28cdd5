// Functions of numbers that CUDA's kernels define or round otherwise than the CPU's.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda: Activation*.cu, BinaryMiscOpsKernels.cu,
// BinaryRemainderKernel.cu, BinaryDivFloorKernel.cu, PowKernel.cu, UnaryGeometric*.cu); compared with an
// H100, bit for bit (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

// (self, other), and an out: of numbers that are no integers.
std::vector<at::Tensor> modulus_of_numbers(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> remainder_of_numbers(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> floored_quotient(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> times_log(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> times_log_of_more(c10::ArrayRef<c10::IValue> arguments);

// (self), and an out.
std::vector<at::Tensor> hyperbolic_sine(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> hyperbolic_cosine(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> error_function(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> hard_sigmoid(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> hard_swish(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> entropy(c10::ArrayRef<c10::IValue> arguments);
// (self, eps), and an out.
std::vector<at::Tensor> logit(c10::ArrayRef<c10::IValue> arguments);
// (self, exponent), and an out.
std::vector<at::Tensor> power(c10::ArrayRef<c10::IValue> arguments);

// (gradient, result), and an out.
std::vector<at::Tensor> tanh_gradient(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> sigmoid_gradient(c10::ArrayRef<c10::IValue> arguments);
// (gradient, alpha, scale, input scale, is_result, self or result), and an out.
std::vector<at::Tensor> elu_gradient(c10::ArrayRef<c10::IValue> arguments);
// (gradient, self), and an out.
std::vector<at::Tensor> hard_swish_gradient(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
