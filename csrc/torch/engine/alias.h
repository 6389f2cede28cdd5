// The engine's tensors over device memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/engine/engine.h"

namespace loom::glue {

// Memory that the engine reaches at `data` and does not own.
c10::DataPtr borrowed_memory(void* data);

// The engine's storage over such memory, `bytes` long. The engine's kernels may resize it.
c10::Storage alias_storage(void* data, size_t bytes);

// A tensor of the engine with the metadata of `original`: sizes, strides, offset, math bits, and whether it
// is a number of Python's.
at::Tensor alias_over(c10::Storage storage, const at::Tensor& original);
// The same over memory of its own storage. From a pool: without it an alias costs two allocations.
at::Tensor pooled_alias(void* data, size_t bytes, const at::Tensor& original);
// To the pool, if nobody else holds it.
void give_back_alias(at::Tensor&& alias);

// Points an alias at other memory, or at memory of another size.
void move_alias(const at::Tensor& alias, void* data, size_t bytes);
// Gives an alias the metadata that its original has now.
void refresh_alias(const at::Tensor& alias, const at::Tensor& original);

// A strided tensor of the engine over memory, as another tensor lies in it.
at::Tensor engine_tensor_at(void* data, size_t bytes, c10::ScalarType dtype, at::IntArrayRef sizes,
                            at::IntArrayRef strides, int64_t offset);

}  // namespace loom::glue
