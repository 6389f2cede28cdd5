// Tensors that are more than one stretch of memory: sparse, nested and quantized ones. They are lent and
// adopted by their parts, which are dense.
#pragma once

#include <ATen/core/QuantizerBase.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "runtime/device.h"

namespace loom::glue {

// False for the sparse, nested and quantized.
inline bool is_dense(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::Dense); }

// The memory of a nested tensor in one dimension; of a quantized one, its integers in the same layout.
at::Tensor memory_of(const at::Tensor& tensor);

// Raises where a device without arithmetic is asked for tensors of a kind that the engine `meta` lacks.
void check_computes(const runtime::Device& device, const char* kind);

// A quantized tensor of integers in `memory`.
at::Tensor make_quantized(const at::Tensor& memory, c10::ScalarType dtype, at::QuantizerPtr quantizer);

// Sparse tensors of such parts. PyTorch's own functions look at indices where a program has turned its checks
// of sparse tensors on: those of the device are the device's to write, perhaps later.
at::Tensor coo_over(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
                    bool is_coalesced);
at::Tensor compressed_over(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                           at::IntArrayRef sizes, at::Layout layout);

// The dense tensors that a tensor of another layout is made of, without those that the host holds.
using Parts = c10::SmallVector<at::Tensor, 3>;
Parts parts_of(const at::Tensor& tensor);

}  // namespace loom::glue
