// Errors of the engine's kernels, which are the host's, in the words of CUDA's.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "torch/core/device_type.h"

namespace loom::glue {

// The text as CUDA's kernels would have it: their names, "torch.cuda.FloatTensor", "on CUDA". What names no
// kernel and no type of tensor stays as it is.
std::string in_cuda_words(std::string text);

// For the handler of an error: rethrows it, with its own type, in such words.
[[noreturn]] void rethrow_in_cuda_words(const c10::Error& error);

// Calls a kernel of the engine.
template <typename Call>
decltype(auto) with_cuda_words(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const c10::Error& error) {
    if (device_type() != c10::DeviceType::CUDA) throw;
    rethrow_in_cuda_words(error);
  }
}

}  // namespace loom::glue
