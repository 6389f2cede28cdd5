// How a tensor stands in a command's record, where no kernel of the engine is lent it.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/tape.h"

namespace loom::glue {

// Sizes and strides are the tensor's own: it must outlive the record's use.
inline runtime::Operand operand_of(const at::Tensor& tensor, bool is_written) {
  return {tensor.const_data_ptr(),
          tensor.sizes().data(),
          tensor.strides().data(),
          static_cast<int32_t>(tensor.dim()),
          static_cast<int32_t>(tensor.itemsize()),
          static_cast<int8_t>(tensor.scalar_type()),
          is_written};
}

}  // namespace loom::glue
