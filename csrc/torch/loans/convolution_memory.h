// What a card's library of convolutions needs of the device's memory while it makes one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace loom::glue {

enum class ConvolutionRole : uint8_t { kForward, kGradientOfSource, kGradientOfWeight };

// Of the convolution of `source` by `weight` into `out`, or of a gradient, which has the same three: bytes.
// On matrix units, and for most convolutions of float32, cuDNN works on images whose channels lie innermost,
// and turns what lies otherwise into memory of its own. These are, to the byte, the sizes that an NVIDIA H200
// allocated for calls (cuDNN 9, cudnn.benchmark off); gradients of windows' weights take up to 8 MiB more or
// less. `in_tf32`: of float32, on matrix units.
size_t convolution_memory(ConvolutionRole role, const at::Tensor& source, const at::Tensor& weight,
                          const at::Tensor& out, bool in_tf32);

}  // namespace loom::glue
