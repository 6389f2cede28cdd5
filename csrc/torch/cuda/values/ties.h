// Which of equal elements CUDA's kernels name first, and which mode they take of several.
//
// Source: PyTorch's public kernels (aten/src/ATen/native/cuda: Sort.cu, SortUtils.cuh, TensorTopK.cu,
// Sorting.cu, TensorModeKernel.cu); compared with an H200 and an H100 (tests/cuda/test_card_values.py).
#pragma once

#include "torch/engine/own_kernels.h"

namespace loom::glue {

std::vector<at::Tensor> sort_slices(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> top_of_slices(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> kth_of_slices(c10::ArrayRef<c10::IValue> arguments);
template <bool kSkipsNan>
std::vector<at::Tensor> median_of_slices(c10::ArrayRef<c10::IValue> arguments);
std::vector<at::Tensor> mode_of_slices(c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
