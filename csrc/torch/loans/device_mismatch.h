// Operands of one op on two devices: refused when they are lent, in CUDA's words under the name cuda.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include "torch/ops/op.h"

namespace loom::glue {

// What lending raises. It knows one operand at a time.
class DeviceMismatch final : public c10::Error {
  using c10::Error::Error;
};

// In the handler of such an error: raises what CUDA's op raises for these arguments, or the error again.
[[noreturn]] void raise_mismatch(const Op& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace loom::glue
