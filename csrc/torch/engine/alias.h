// The engine's tensors over device memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/engine/engine.h"
#include "util/call_key.h"

namespace loom::glue {

// Memory that the engine reaches at `data` and does not own.
c10::DataPtr alias_memory(void* data, c10::DeviceType engine);
// A storage of the engine over it, which the engine's kernels may resize.
c10::Storage alias_storage(void* data, size_t bytes, c10::DeviceType engine);

// A tensor of the engine with the metadata of `original`: sizes, strides, offset, conjugate and negative
// bits, and whether it is a number of Python's. `keys`: the engine's.
at::Tensor make_alias(c10::Storage storage, c10::DispatchKeySet keys, const c10::TensorImpl* original);

// An unused alias, now over this memory: reuse saves two allocations per operand. Undefined when there is
// none, or `original` has conjugate or negative bits. The alias given back last comes first, and keeps its
// metadata where `original` has the same.
at::Tensor reuse_alias(void* data, size_t bytes, c10::DeviceType engine, const c10::TensorImpl* original);
// Its metadata must be that of its last original: no kernel has changed it.
void give_back_alias(at::Tensor&& alias);
// 128 bits for the metadata that an alias has taken: dtype, sizes, strides, bits, not the offset.
const CallKey& metadata_key(const at::Tensor& alias);

// Points an alias at other memory, of as many bytes as before unless they are given.
void point_alias(const at::Tensor& alias, void* data);
void point_alias(const at::Tensor& alias, void* data, size_t bytes);
// Gives an alias the metadata that its original has now.
void refresh_alias(const at::Tensor& alias, const c10::TensorImpl* original);

}  // namespace loom::glue
