// What CUDA has no kernel for and the engine has: a GPU refuses it under the name cuda, in CUDA's words.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string_view>

#include "torch/core/dtype_set.h"

namespace loom::glue {

// One op's, generated from torch_loom/cuda/refusals.py.
struct Refusal {
  enum class Case : uint8_t {
#include "torch/generated/refusal_cases.inc"
  };

  const char* full_name;
  const char* kernel;
  DtypeSet takes;  // by CUDA's kernels
  Case when;
  uint8_t num_out;  // the last operands, which are results
};

// Null: CUDA has kernels for all that the engine has.
const Refusal* refusal_of(std::string_view full_name);

// Whether calls with matrices by row are worth a closer look, which have kernels of their own.
bool refuses_rows(const Refusal* refusal);

// Operands of these dtypes make a call worth a closer look; none under any name but cuda.
DtypeSet refused_dtypes_of(const Refusal* refusal);

// Raises what CUDA raises, if it would for these arguments and the chip is a GPU.
void refuse_as_cuda(const Refusal& refusal, c10::ArrayRef<c10::IValue> arguments, int device);

}  // namespace loom::glue
