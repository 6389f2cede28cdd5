// Tensors of the program and of dry runs: an op sees one world of devices (runtime/worlds.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/worlds.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace detail {
void check_world_slow(const runtime::Runtime& seen, const c10::StorageImpl* storage, int index,
                      const char* op_name, bool wants_gradient);
}  // namespace detail

// Throws when what an op is given belongs to devices that the program does not see now: a tensor made outside
// of the dry run that is under way, or a tensor that outlived its dry run. Costs a branch where there was no
// dry run.
inline void check_world(const c10::StorageImpl* storage, int index, const char* op_name) {
  if (runtime::has_other_worlds()) [[unlikely]] {
    detail::check_world_slow(devices(), storage, index, op_name, /*wants_gradient=*/false);
  }
}
inline void check_world(const runtime::Runtime& seen, const at::Tensor& tensor, const char* op_name) {
  if (!runtime::has_other_worlds() || tensor.device().type() != device_type()) [[likely]] {
    return;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  detail::check_world_slow(seen,
                           impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr,
                           tensor.device().index(), op_name, tensor.requires_grad());
}
inline void check_world(const at::Tensor& tensor, const char* op_name) {
  check_world(devices(), tensor, op_name);
}

}  // namespace loom::glue
