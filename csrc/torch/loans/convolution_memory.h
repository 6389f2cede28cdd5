// What a card's library of convolutions needs of the device's memory while it makes one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace loom::glue {

enum class ConvolutionRole : uint8_t { kForward, kGradientOfSource, kGradientOfWeight };

// Of the convolution of `source` by `weight` into `out`, or of a gradient, which has the same three: bytes.
// On matrix units cuDNN works on images whose channels lie innermost, and turns what lies otherwise into
// memory of its own; gradients of weights are summed in parts. These are the rules behind the sizes that an
// NVIDIA H100 and an H200 allocated for calls (cuDNN 9.19, cudnn.benchmark off): 1,557 of 1,965 to 512 bytes.
// Which kernel cuDNN takes is its own estimate: grouped convolutions and float32 with channels innermost are
// off most. `in_tf32`: of float32, on matrix units.
size_t convolution_memory(ConvolutionRole role, const at::Tensor& source, const at::Tensor& weight,
                          const at::Tensor& out, bool in_tf32);

}  // namespace loom::glue
